package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: who asks, and who answers with what was asked behind "re: ". */
final class Requests {
    private static final Map<String, Replier> REPLIERS = new ConcurrentHashMap<>();
    private static final AtomicInteger NEXT = new AtomicInteger();

    private Requests() {
    }

    static void register() {
        Agent.op("request", Requests::request);
        Agent.op("replier.start", args -> {
            String handle = "replier-" + NEXT.incrementAndGet();
            REPLIERS.put(handle, new Replier(args));
            return handle;
        });
        Agent.op("replier.stop", args -> {
            Replier replier = REPLIERS.remove(args.getString("handle"));
            if (replier != null) {
                replier.stop();
            }
            return replier == null ? null : replier.failed;
        });
    }

    private static DefaultMQProducer producer(JSONObject args, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName("r" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    /** The reply's body, properties and topic. */
    private static Object request(JSONObject args) throws Exception {
        DefaultMQProducer producer = producer(args, "interop_requester");
        try {
            Message reply = producer.request(Sends.message(args.getJSONObject("message")),
                args.getLongValue("timeoutMs", 120_000));
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("topic", reply.getTopic());
            o.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
            o.put("props", reply.getProperties());
            return o;
        } finally {
            producer.shutdown();
        }
    }

    private static final class Replier {
        private final DefaultMQProducer producer;
        private final DefaultMQPushConsumer consumer;
        private volatile String failed = "";

        Replier(JSONObject args) throws Exception {
            producer = producer(args, "interop_replier");
            consumer = new DefaultMQPushConsumer(args.getString("group"));
            consumer.setNamesrvAddr(args.getString("namesrv"));
            consumer.setInstanceName("q" + System.nanoTime());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args.getString("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt m : messages) {
                    if (MessageUtil.getReplyToClient(m) == null) {
                        continue; // nobody asks
                    }
                    try {
                        String asked = new String(m.getBody(), StandardCharsets.UTF_8);
                        byte[] body = ("re: " + asked).getBytes(StandardCharsets.UTF_8);
                        producer.send(MessageUtil.createReplyMessage(m, body));
                    } catch (Exception e) {
                        failed = e.toString();
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        void stop() {
            consumer.shutdown();
            producer.shutdown();
        }
    }
}
