package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer (subscribe or assign, seek, poll, commit) and the plain one (pull from an offset). */
@SuppressWarnings("deprecation")
final class Pulls {
    private static final Map<String, DefaultLitePullConsumer> LITES = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQPullConsumer> PULLS = new ConcurrentHashMap<>();
    private static final AtomicInteger NEXT = new AtomicInteger();

    private Pulls() {
    }

    static void register() {
        Agent.op("lite.start", Pulls::start);
        Agent.op("lite.poll", Pulls::poll);
        Agent.op("lite.assignment", args -> Plain.queues(lite(args).assignment()));
        Agent.op("lite.queues", args -> Plain.queues(lite(args).fetchMessageQueues(args.getString("topic"))));
        Agent.op("lite.commit", args -> {
            lite(args).commit();
            return true;
        });
        Agent.op("lite.committed", args -> lite(args).committed(queue(args)));
        Agent.op("lite.offsetForTimestamp", args ->
            lite(args).offsetForTimestamp(queue(args), args.getLongValue("timestamp")));
        Agent.op("lite.seek", args -> {
            Object to = args.get("to");
            if ("begin".equals(to)) {
                lite(args).seekToBegin(queue(args));
            } else if ("end".equals(to)) {
                lite(args).seekToEnd(queue(args));
            } else {
                lite(args).seek(queue(args), args.getLongValue("to"));
            }
            return true;
        });
        Agent.op("lite.stop", args -> {
            DefaultLitePullConsumer lite = LITES.remove(args.getString("handle"));
            if (lite != null) {
                lite.shutdown();
            }
            return lite != null;
        });
        Agent.op("pull", Pulls::pull);
        Agent.op("pull.stop", args -> {
            DefaultMQPullConsumer pull = PULLS.remove(args.getString("namesrv"));
            if (pull != null) {
                pull.shutdown();
            }
            return pull != null;
        });
    }

    private static DefaultLitePullConsumer lite(JSONObject args) {
        return LITES.get(args.getString("handle"));
    }

    private static MessageQueue queue(JSONObject args) {
        return Sends.queue(args.getJSONObject("queue"));
    }

    private static Object start(JSONObject args) throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(args.getString("group"));
        lite.setNamesrvAddr(args.getString("namesrv"));
        lite.setInstanceName("l" + System.nanoTime());
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.setAutoCommit(args.getBooleanValue("autoCommit", false));
        if (args.containsKey("expr")) {
            lite.subscribe(args.getString("topic"), args.getString("expr"));
        }
        lite.start();
        if (args.containsKey("assign")) {
            List<MessageQueue> queues = new ArrayList<>();
            args.getList("assign", JSONObject.class).forEach(q -> queues.add(Sends.queue(q)));
            lite.assign(queues);
        }
        String handle = "lite-" + NEXT.incrementAndGet();
        LITES.put(handle, lite);
        return handle;
    }

    /** Polls until `count` messages came or the time is over. */
    private static Object poll(JSONObject args) {
        long end = System.currentTimeMillis() + args.getLongValue("timeoutMs");
        List<MessageExt> messages = new ArrayList<>();
        while (messages.size() < args.getIntValue("count") && System.currentTimeMillis() < end) {
            messages.addAll(lite(args).poll(Math.max(1, Math.min(500, end - System.currentTimeMillis()))));
        }
        return Plain.messages(messages);
    }

    private static Object pull(JSONObject args) throws Exception {
        DefaultMQPullConsumer consumer;
        synchronized (PULLS) {
            consumer = PULLS.get(args.getString("namesrv"));
            if (consumer == null) {
                consumer = new DefaultMQPullConsumer("interop_pull");
                consumer.setNamesrvAddr(args.getString("namesrv"));
                consumer.setInstanceName("q" + System.nanoTime());
                consumer.start();
                PULLS.put(args.getString("namesrv"), consumer);
            }
        }
        int max = args.getIntValue("max", 32);
        long offset = args.getLongValue("offset");
        String expr = (String) args.getOrDefault("expr", "*");
        PullResult r = args.getBooleanValue("block") ? consumer.pullBlockIfNotFound(queue(args), expr, offset, max)
            : consumer.pull(queue(args), expr, offset, max, 10_000);
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("status", r.getPullStatus().name());
        o.put("next", r.getNextBeginOffset());
        o.put("min", r.getMinOffset());
        o.put("max", r.getMaxOffset());
        o.put("messages", r.getMsgFoundList() == null ? List.of() : Plain.messages(r.getMsgFoundList()));
        return o;
    }
}
