package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * All stock Java clients in one JVM: a command is a line of JSON on stdin, its answer a line of JSON on stdout.
 *
 * <p>{"id":1,"op":"send",...} is answered by {"id":1,"ok":...} or {"id":1,"error":{"type","code","message"}}.
 * Commands run at the same time, each in a thread; whoever wants an order waits for the answer.
 */
public final class Agent {
    interface Op {
        Object run(JSONObject args) throws Exception;
    }

    private static final Map<String, Op> OPS = new ConcurrentHashMap<>();

    static void op(String name, Op op) {
        OPS.put(name, op);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Sends.register();
        Requests.register();
        Commands.register();
        Pushes.register();
        Pulls.register();
        Admins.register();
        Filters.register();
        Transactions.register();
        Pops.register();
        Servers.register();
        Auths.register();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject command = JSON.parseObject(line);
            threads.execute(() -> {
                String answer = JSON.toJSONString(answer(command), JSONWriter.Feature.WriteNulls);
                synchronized (answers) {
                    byte[] bytes = (answer + "\n").getBytes(StandardCharsets.UTF_8);
                    answers.write(bytes, 0, bytes.length);
                    answers.flush();
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JSONObject command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id"));
        try {
            Op op = OPS.get(command.getString("op"));
            if (op == null) {
                throw new IllegalArgumentException("no such op: " + command.getString("op"));
            }
            answer.put("ok", op.run(command));
        } catch (Throwable e) {
            answer.put("error", error(e));
        }
        return answer;
    }

    /** What went wrong, with the response code of the server when there is one (0: none, -1: client side). */
    static Map<String, Object> error(Throwable e) {
        Throwable t = e instanceof InvocationTargetException ? e.getCause() : e;
        int code = 0;
        for (Throwable c = t; c != null && code == 0; c = c.getCause()) {
            if (c instanceof MQBrokerException) {
                code = ((MQBrokerException) c).getResponseCode();
            } else if (c instanceof MQClientException && c.getCause() == null) {
                code = ((MQClientException) c).getResponseCode();
            }
        }
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("type", t.getClass().getSimpleName());
        error.put("code", code);
        error.put("message", String.valueOf(t.getMessage()));
        return error;
    }
}
