package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactional producers. What becomes of a message stands at the head of its body, up to the first space:
 * "commit", "rollback", "ask-commit" and "ask-rollback" (said when asked), "never" (not even then); and behind a slash
 * what the test likes, "commit/7".
 */
final class Transactions {
    private static final Map<String, Transactional> PRODUCERS = new ConcurrentHashMap<>();
    private static final AtomicInteger NEXT = new AtomicInteger();
    private static final String[] PLANS = {"commit", "rollback", "commit", "ask-commit", "ask-rollback"};

    private Transactions() {
    }

    static void register() {
        Agent.op("tx.start", args -> {
            String handle = "tx-" + NEXT.incrementAndGet();
            PRODUCERS.put(handle, new Transactional(args));
            return handle;
        });
        Agent.op("tx.send", args -> PRODUCERS.get(args.getString("handle")).send(
            Sends.message(args.getJSONObject("message"))));
        Agent.op("tx.asked", args -> {
            Transactional producer = PRODUCERS.get(args.getString("handle"));
            synchronized (producer.asked) {
                return new ArrayList<>(producer.asked);
            }
        });
        Agent.op("tx.flood", args -> {
            PRODUCERS.get(args.getString("handle")).flood(args.getString("topic"), args.getLongValue("pauseMs", 5));
            return true;
        });
        Agent.op("tx.stored", args -> PRODUCERS.get(args.getString("handle")).stored.size());
        Agent.op("tx.drain", args -> PRODUCERS.get(args.getString("handle")).drain());
        Agent.op("tx.stop", args -> {
            Transactional producer = PRODUCERS.remove(args.getString("handle"));
            if (producer != null) {
                producer.drain();
                producer.client.shutdown();
            }
            return producer != null;
        });
    }

    private static String name(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 2)[0];
    }

    private static LocalTransactionState state(String name, boolean asked) {
        String plan = name.split("/", 2)[0];
        if (plan.startsWith("ask-")) {
            if (!asked) {
                return LocalTransactionState.UNKNOW;
            }
            plan = plan.substring(4);
        }
        switch (plan) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private static final class Transactional implements TransactionListener {
        final TransactionMQProducer client;
        final List<Map<String, Object>> asked = new ArrayList<>();
        final List<String> stored = Collections.synchronizedList(new ArrayList<>());
        private volatile boolean ended;
        private Thread thread;

        Transactional(JSONObject args) throws Exception {
            client = new TransactionMQProducer(args.getString("group"));
            client.setNamesrvAddr(args.getString("namesrv"));
            client.setInstanceName("tx" + System.nanoTime());
            client.setSendMsgTimeout(args.getIntValue("timeoutMs", 10_000));
            client.setPollNameServerInterval(args.getIntValue("pollMs", 30_000));
            client.setHeartbeatBrokerInterval(args.getIntValue("beatMs", 30_000));
            client.setTransactionListener(this);
            client.start();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return state(name(message), false);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            synchronized (asked) {
                asked.add(Plain.message(message));
            }
            return state(name(message), true);
        }

        Map<String, Object> send(Message message) throws Exception {
            SendResult r = client.sendMessageInTransaction(message, null);
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("status", r.getSendStatus().name());
            o.put("msgId", r.getMsgId());
            o.put("transactionId", r.getTransactionId());
            o.put("offsetMsgId", r.getOffsetMsgId());
            o.put("queueOffset", r.getQueueOffset());
            return o;
        }

        /** Messages of each kind in turn, each until its half is acknowledged; at its end all of them. */
        void flood(String topic, long pauseMs) {
            thread = new Thread(() -> {
                for (int i = 0; !ended; i++) {
                    String name = PLANS[i % PLANS.length] + "/" + i;
                    while (!ended) {
                        try {
                            Message message = new Message(topic, (name + " x").getBytes(StandardCharsets.UTF_8));
                            if (client.sendMessageInTransaction(message, null).getSendStatus() == SendStatus.SEND_OK) {
                                stored.add(name);
                                break;
                            }
                        } catch (Exception e) {
                            System.err.println(name + ": " + e);
                        }
                        sleep(50);
                    }
                    sleep(pauseMs);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        /** End the flood; the names of all whose half was acknowledged. */
        List<String> drain() throws InterruptedException {
            ended = true;
            if (thread != null) {
                thread.join();
            }
            return stored;
        }

        private static void sleep(long ms) {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
