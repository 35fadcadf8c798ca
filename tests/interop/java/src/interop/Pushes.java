package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Push consumers: they collect what they are given (or, brief, the first words of it), and fail as often as they are told. */
final class Pushes {
    private static final Map<String, Push> PUSHES = new ConcurrentHashMap<>();
    private static final AtomicInteger NEXT = new AtomicInteger();

    private Pushes() {
    }

    static void register() {
        Agent.op("push.start", args -> {
            String handle = "push-" + NEXT.incrementAndGet();
            PUSHES.put(handle, new Push(args));
            return handle;
        });
        Agent.op("push.await", args -> PUSHES.get(args.getString("handle"))
            .await(args.getIntValue("count"), args.getLongValue("timeoutMs")));
        Agent.op("push.queues", args -> {
            DefaultMQPushConsumer c = PUSHES.get(args.getString("handle")).consumer;
            return Plain.queues(c.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
        });
        Agent.op("push.clientId", args ->
            PUSHES.get(args.getString("handle")).consumer.buildMQClientId());
        Agent.op("push.stop", args -> {
            Push push = PUSHES.remove(args.getString("handle"));
            if (push == null) {
                return null;
            }
            push.consumer.shutdown();
            return push.seen();
        });
    }

    private static final class Push {
        final DefaultMQPushConsumer consumer;
        private final List<Map<String, Object>> seen = new ArrayList<>();
        private final int failures;
        private final int delayLevel;
        private final boolean brief;

        Push(JSONObject args) throws Exception {
            failures = args.getIntValue("failures", 0);
            delayLevel = args.getIntValue("delayLevel", 1);
            brief = args.getBooleanValue("brief");
            consumer = new DefaultMQPushConsumer(args.getString("group"), Auths.hook(args));
            consumer.setNamesrvAddr(args.getString("namesrv"));
            consumer.setInstanceName("c" + System.nanoTime());
            consumer.setEnableTrace(args.getBooleanValue("traced"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
                "CONSUME_FROM_" + args.getOrDefault("from", "FIRST_OFFSET")));
            if (args.containsKey("timestamp")) {
                consumer.setConsumeTimestamp(args.getString("timestamp"));
            }
            consumer.setMessageModel(MessageModel.valueOf((String) args.getOrDefault("model", "CLUSTERING")));
            consumer.setMaxReconsumeTimes(args.getIntValue("maxReconsumeTimes", -1));
            consumer.setSuspendCurrentQueueTimeMillis(args.getLongValue("suspendMs", 100));
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            consumer.setPersistConsumerOffsetInterval(1000);
            consumer.setAwaitTerminationMillisWhenShutdown(10_000); // else what was just taken may come again
            consumer.setPollNameServerInterval(2000);
            consumer.setClientRebalance(!args.getBooleanValue("popping"));
            consumer.setPopInvisibleTime(args.getLongValue("invisibleMs", 60_000));
            consumer.setPullBatchSize(args.getIntValue("pullBatch", 32));
            if (args.containsKey("sql")) {
                consumer.subscribe(args.getString("topic"), MessageSelector.bySql(args.getString("sql")));
            } else {
                consumer.subscribe(args.getString("topic"), (String) args.getOrDefault("expr", "*"));
            }
            if (args.getBooleanValue("ordered")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    take(messages) ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    context.setDelayLevelWhenNextConsume(delayLevel);
                    return take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
            try {
                consumer.start();
            } catch (Exception e) {
                consumer.shutdown();
                throw e;
            }
        }

        private static Map<String, Object> whole(MessageExt m) {
            Map<String, Object> o = Plain.message(m);
            o.put("at", System.currentTimeMillis());
            return o;
        }

        private static String firstWord(MessageExt m) {
            return new String(m.getBody(), StandardCharsets.UTF_8).split(" ", 2)[0];
        }

        private boolean take(List<MessageExt> messages) {
            boolean well = true;
            synchronized (seen) {
                for (MessageExt m : messages) {
                    seen.add(brief ? Map.of("body", firstWord(m)) : whole(m));
                    well &= m.getReconsumeTimes() >= failures;
                }
                seen.notifyAll();
            }
            return well;
        }

        List<Map<String, Object>> seen() {
            synchronized (seen) {
                return new ArrayList<>(seen);
            }
        }

        /** All messages so far, as soon as there are `count` of them or the time is over. */
        List<Map<String, Object>> await(int count, long timeoutMs) throws InterruptedException {
            long end = System.currentTimeMillis() + timeoutMs;
            synchronized (seen) {
                while (seen.size() < count && System.currentTimeMillis() < end) {
                    seen.wait(Math.max(1, end - System.currentTimeMillis()));
                }
                return new ArrayList<>(seen);
            }
        }
    }
}
