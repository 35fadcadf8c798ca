package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** What the original's filters make of expressions. */
final class Filters {
    private Filters() {
    }

    static void register() {
        Agent.op("sql92", args -> {
            List<String> results = new ArrayList<>();
            for (Object item : args.getJSONArray("cases")) {
                results.add(result((JSONObject) item));
            }
            return results;
        });
    }

    /** The value as a text with its class, "refused" where it does not compile, "failed" where it does not evaluate. */
    private static String result(JSONObject item) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(item.getString("expr"));
        } catch (Throwable error) {
            return "refused";
        }
        Map<String, String> properties = new HashMap<>();
        for (Map.Entry<String, Object> each : item.getJSONObject("properties").entrySet()) {
            properties.put(each.getKey(), (String) each.getValue());
        }
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            });
            return value == null ? "null" : value.toString();
        } catch (Throwable error) {
            return "failed";
        }
    }
}
