package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers: every way to send, and a flood that goes on while brokers die. */
final class Sends {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, Flood> FLOODS = new ConcurrentHashMap<>();

    private Sends() {
    }

    static void register() {
        Agent.op("send", Sends::send);
        Agent.op("transaction", Sends::transaction);
        Agent.op("producer.stop", args -> {
            DefaultMQProducer producer = PRODUCERS.remove(key(args));
            if (producer != null) {
                producer.shutdown();
            }
            return producer != null;
        });
        Agent.op("producers.stop", args -> {
            for (String key : new ArrayList<>(PRODUCERS.keySet())) {
                if (key.startsWith(args.getString("namesrv") + " ")) {
                    PRODUCERS.remove(key).shutdown();
                }
            }
            return true;
        });
        Agent.op("recall", args -> producer(args).recallMessage(args.getString("topic"), args.getString("handle")));
        Agent.op("flood.start", args -> {
            Flood flood = new Flood(args, producer(args));
            FLOODS.put(args.getString("name"), flood);
            flood.start();
            return true;
        });
        Agent.op("flood.await", args -> FLOODS.get(args.getString("name"))
            .await(args.getIntValue("acked"), args.getLongValue("timeoutMs")));
        Agent.op("flood.end", args -> FLOODS.remove(args.getString("name")).end(args.getLongValue("timeoutMs")));
    }

    private static String key(JSONObject args) {
        return args.getString("namesrv") + " " + args.getOrDefault("group", "interop_producer") + " "
            + args.getOrDefault("compress", "") + " " + args.getOrDefault("traced", "")
            + " " + args.getOrDefault("keys", "");
    }

    /** One producer for each name server, group, compression and whether it is traced, kept for the next command. */
    private static DefaultMQProducer producer(JSONObject args) throws Exception {
        synchronized (PRODUCERS) {
            DefaultMQProducer producer = PRODUCERS.get(key(args));
            if (producer == null) {
                producer = new DefaultMQProducer((String) args.getOrDefault("group", "interop_producer"),
                    Auths.hook(args));
                producer.setNamesrvAddr(args.getString("namesrv"));
                producer.setInstanceName("p" + System.nanoTime());
                producer.setMaxMessageSize(64 << 20);
                producer.setSendMsgTimeout(args.getIntValue("timeoutMs", 10_000));
                producer.setRetryTimesWhenSendFailed(args.getIntValue("retries", 2));
                producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
                producer.setPollNameServerInterval(args.getIntValue("pollMs", 30_000));
                producer.setEnableTrace(args.getBooleanValue("traced"));
                if (args.containsKey("compress")) {
                    producer.setCompressType(CompressionType.of(args.getString("compress")));
                    producer.setCompressMsgBodyOverHowmuch(args.getIntValue("compressOver", 100));
                }
                producer.start();
                PRODUCERS.put(key(args), producer);
            }
            return producer;
        }
    }

    static Message message(JSONObject m) {
        Message message = new Message(m.getString("topic"), m.getString("body").getBytes(StandardCharsets.UTF_8));
        if (m.containsKey("tags")) {
            message.setTags(m.getString("tags"));
        }
        if (m.containsKey("keys")) {
            message.setKeys(m.getString("keys"));
        }
        message.setFlag(m.getIntValue("flag", 0));
        if (m.containsKey("delayLevel")) {
            message.setDelayTimeLevel(m.getIntValue("delayLevel"));
        }
        if (m.containsKey("priority")) {
            message.setPriority(m.getIntValue("priority"));
        }
        if (m.containsKey("delayMs")) {
            message.setDelayTimeMs(m.getLongValue("delayMs"));
        }
        if (m.containsKey("delaySec")) {
            message.setDelayTimeSec(m.getLongValue("delaySec"));
        }
        if (m.containsKey("deliverMs")) {
            message.setDeliverTimeMs(m.getLongValue("deliverMs"));
        }
        JSONObject props = m.getJSONObject("props");
        if (props != null) {
            props.forEach((k, v) -> MessageAccessor.putProperty(message, k, (String) v));
        }
        return message;
    }

    static MessageQueue queue(JSONObject q) {
        return new MessageQueue(q.getString("topic"), q.getString("broker"), q.getIntValue("queueId"));
    }

    private static Map<String, Object> result(SendResult r) {
        Map<String, Object> o = new LinkedHashMap<>();
        if (r != null) {
            o.put("status", r.getSendStatus().name());
            o.put("msgId", r.getMsgId());
            o.put("offsetMsgId", r.getOffsetMsgId());
            o.put("broker", r.getMessageQueue().getBrokerName());
            o.put("queueId", r.getMessageQueue().getQueueId());
            o.put("queueOffset", r.getQueueOffset());
            o.put("regionId", r.getRegionId());
            o.put("traceOn", r.isTraceOn());
            o.put("recallHandle", r.getRecallHandle());
        }
        return o;
    }

    /** One result for each message (one for all in mode batch): a send result, or {"error": ...}. */
    private static Object send(JSONObject args) throws Exception {
        DefaultMQProducer producer = producer(args);
        List<JSONObject> messages = args.getList("messages", JSONObject.class);
        String mode = (String) args.getOrDefault("mode", "sync");
        if (mode.equals("batch")) {
            List<Message> batch = new ArrayList<>();
            messages.forEach(m -> batch.add(message(m)));
            return args.containsKey("queue") ? result(producer.send(batch, queue(args.getJSONObject("queue"))))
                : result(producer.send(batch));
        }
        if (mode.equals("async")) {
            return async(producer, messages, args.getLongValue("timeoutMs", 30_000));
        }
        List<Object> results = new ArrayList<>();
        for (JSONObject m : messages) {
            try {
                results.add(result(sendOne(producer, mode, m)));
            } catch (Exception e) {
                results.add(Map.of("error", Agent.error(e)));
            }
        }
        return results;
    }

    private static SendResult sendOne(DefaultMQProducer producer, String mode, JSONObject m) throws Exception {
        Message message = message(m);
        switch (mode) {
            case "oneway":
                producer.sendOneway(message);
                return null;
            case "ordered":
                return producer.send(message,
                    (queues, sent, arg) -> queues.get(Math.floorMod((int) arg, queues.size())), m.getIntValue("key"));
            default:
                return m.containsKey("queue") ? producer.send(message, queue(m.getJSONObject("queue")))
                    : producer.send(message);
        }
    }

    private static Object async(DefaultMQProducer producer, List<JSONObject> messages, long timeoutMs)
        throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch left = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            int at = i;
            producer.send(message(messages.get(i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    results[at] = result(r);
                    left.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    results[at] = Map.of("error", Agent.error(e));
                    left.countDown();
                }
            });
        }
        if (!left.await(timeoutMs, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(left.getCount() + " of " + results.length + " sends without an answer");
        }
        return results;
    }

    private static Object transaction(JSONObject args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("interop_tx");
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName("t" + System.nanoTime());
        producer.setEnableTrace(args.getBooleanValue("traced"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return LocalTransactionState.valueOf((String) args.getOrDefault("state", "COMMIT_MESSAGE"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            return result(producer.sendMessageInTransaction(message(args.getJSONObject("message")), null));
        } finally {
            producer.shutdown();
        }
    }

    /** One thread for each queue sends "queue-number" in order, each until it is acknowledged; at its end, or before. */
    private static final class Flood {
        private final DefaultMQProducer producer;
        private final String topic;
        private final int perQueue;
        private final int bodySize;
        private final int pauseMs;
        private final int delayMs;
        private final String prefix;
        private final List<Thread> threads = new ArrayList<>();
        private final AtomicInteger retries = new AtomicInteger();
        private final List<String> acked = Collections.synchronizedList(new ArrayList<>());
        private final Map<String, String> ids = new ConcurrentHashMap<>();
        private volatile boolean ended;

        Flood(JSONObject args, DefaultMQProducer producer) throws Exception {
            this.producer = producer;
            this.topic = args.getString("topic");
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
            this.perQueue = args.getIntValue("count") / queues.size();
            this.bodySize = args.getIntValue("bodySize", 64);
            this.pauseMs = args.getIntValue("pauseMs", 0);
            this.delayMs = args.getIntValue("delayMs", 0);
            this.prefix = (String) args.getOrDefault("prefix", "");
            for (MessageQueue queue : queues) {
                Thread thread = new Thread(() -> run(queue));
                thread.setDaemon(true);
                threads.add(thread);
            }
        }

        void start() {
            threads.forEach(Thread::start);
        }

        private void run(MessageQueue queue) {
            for (int i = 0; i < perQueue && !ended; i++) {
                String name = prefix + queue.getBrokerName() + "/" + queue.getQueueId() + "-" + i;
                byte[] body = (name + " " + "x".repeat(bodySize)).getBytes(StandardCharsets.UTF_8);
                while (!ended) {
                    try {
                        Message message = new Message(topic, "", name, body);
                        if (delayMs > 0) {
                            long deliverMs = System.currentTimeMillis() + 1 + i * 7919L % delayMs;
                            message.setDeliverTimeMs(deliverMs);
                            message.putUserProperty("wanted", String.valueOf(deliverMs));
                        }
                        SendResult sent = producer.send(message, queue, 2000);
                        if (sent.getSendStatus() == SendStatus.SEND_OK) {
                            ids.put(name, sent.getOffsetMsgId());
                            break;
                        }
                    } catch (Exception e) {
                        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
                    }
                    retries.incrementAndGet();
                }
                if (ended) {
                    return;
                }
                acked.add(name);
                if (pauseMs > 0) {
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(pauseMs));
                }
            }
        }

        /** Waits until so many messages are acknowledged. */
        int await(int count, long timeoutMs) throws InterruptedException {
            long end = System.currentTimeMillis() + timeoutMs;
            while (acked.size() < count && System.currentTimeMillis() < end) {
                Thread.sleep(5);
            }
            return acked.size();
        }

        Object end(long timeoutMs) throws InterruptedException {
            await(perQueue * threads.size(), timeoutMs);
            ended = true;
            for (Thread thread : threads) {
                thread.join(10_000);
            }
            return Map.of("acked", new ArrayList<>(acked), "ids", ids, "retries", retries.get());
        }
    }
}
