import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Does what users of a stock Java client do, one kind after the other, for any version from 4.3 on.
 *
 * <p>A kind is a line on stdin; "done KIND", "lacks KIND" (this version has no such thing) or "failed KIND why" is the
 * answer on stdout. What newer versions alone have is looked up by reflection.
 */
public final class Kinds {
    private static final String TOPIC = "recorded";
    private static final byte[] BODY = "recorded body".getBytes(StandardCharsets.UTF_8);
    private static final int TIMEOUT_MS = 20_000;

    private interface Act {
        void run() throws Exception;
    }

    private final String namesrv;
    private final Map<String, Act> acts = new TreeMap<>();
    private DefaultMQProducer producer;

    private Kinds(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) throws Exception {
        Kinds kinds = new Kinds(args[0]);
        kinds.define();
        kinds.producer = new DefaultMQProducer("recorded_producer");
        kinds.start(kinds.producer);
        System.out.println("kinds " + String.join(" ", kinds.acts.keySet()));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String kind = in.readLine(); kind != null; kind = in.readLine()) {
            try {
                kinds.acts.get(kind).run();
                System.out.println("done " + kind);
            } catch (ReflectiveOperationException e) {
                System.out.println("lacks " + kind + " " + e);
            } catch (Throwable e) {
                System.out.println("failed " + kind + " " + e);
                e.printStackTrace();
            }
        }
        System.exit(0);
    }

    private void start(DefaultMQProducer one) throws Exception {
        one.setNamesrvAddr(namesrv);
        one.setInstanceName("recorded-" + System.nanoTime());
        one.setSendMsgTimeout(TIMEOUT_MS);
        one.start();
    }

    private static Message message() {
        return new Message(TOPIC, BODY);
    }

    private static Message with(String name, String value) {
        Message message = message();
        MessageAccessor.putProperty(message, name, value);
        return message;
    }

    private void define() {
        defineMessages();
        defineWays();
        defineConsumers();
        definePops();
    }

    private void defineMessages() {
        acts.put("plain", () -> producer.send(message()));
        acts.put("tag", () -> producer.send(new Message(TOPIC, "TagA", BODY)));
        acts.put("tag-and-keys", () -> producer.send(new Message(TOPIC, "TagA", "order-1 order-2", BODY)));
        acts.put("chinese-key", () -> producer.send(new Message(TOPIC, "标签", "订单-42 键", BODY)));
        acts.put("emoji-property", () -> {
            Message message = message();
            message.putUserProperty("mood", "\uD83D\uDE00 fine");
            producer.send(message);
        });
        acts.put("json-property", () -> {
            Message message = message();
            message.putUserProperty("trace", "{\"id\": \"a\\b\", \"hops\": [1, 2]}");
            producer.send(message);
        });
        acts.put("many-properties", () -> {
            Message message = new Message(TOPIC, "TagA", "key", BODY);
            for (int i = 0; i < 20; i++) {
                message.putUserProperty("property-" + i, "value of " + i);
            }
            producer.send(message);
        });
        acts.put("own-unique-key", () -> {
            // A message that brings a key of its own, of other characters.
            producer.send(with("UNIQ_KEY", "own/key:1"));
        });
        acts.put("flag-and-no-wait", () -> {
            Message message = message();
            message.setFlag(7);
            message.setWaitStoreMsgOK(false);
            producer.send(message);
        });
        acts.put("delay-level", () -> {
            Message message = message();
            message.setDelayTimeLevel(3);
            producer.send(message);
        });
        acts.put("delay-seconds", () -> producer.send(with("TIMER_DELAY_SEC", "30")));
        acts.put("deliver-at", () ->
            producer.send(with("TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + 60_000))));
        acts.put("priority", () -> producer.send(with("_SYS_MSG_PRIORITY_", "3")));
        acts.put("lite-topic", () -> producer.send(with("__LITE_TOPIC", "session-1")));
        acts.put("compressed", () -> producer.send(new Message(TOPIC, new byte[20_000])));
        acts.put("one-kibibyte", () -> {
            byte[] body = new byte[1 << 10];
            Arrays.fill(body, (byte) 'x');
            producer.send(new Message(TOPIC, body));
        });
    }

    private void defineWays() {
        acts.put("one-way", () -> producer.sendOneway(message()));
        acts.put("async", () -> {
            CountDownLatch sent = new CountDownLatch(1);
            producer.send(message(), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    e.printStackTrace();
                }
            });
            await(sent);
        });
        acts.put("ordered", () -> {
            Message message = message();
            MessageAccessor.putProperty(message, "__SHARDINGKEY", "customer-7");
            producer.send(message, (queues, m, key) -> queues.get(0), "customer-7");
        });
        acts.put("batch", () -> producer.send(Arrays.asList(
            new Message(TOPIC, "TagA", "k1", BODY), new Message(TOPIC, "TagB", "k2 键", BODY), message())));
        acts.put("commit", () -> transact(LocalTransactionState.COMMIT_MESSAGE));
        acts.put("rollback", () -> transact(LocalTransactionState.ROLLBACK_MESSAGE));
        acts.put("undecided", () -> transact(LocalTransactionState.UNKNOW));
        acts.put("traced", () -> {
            DefaultMQProducer one;
            try {
                one = DefaultMQProducer.class.getConstructor(String.class, boolean.class)
                    .newInstance("recorded_traced", true);
            } catch (NoSuchMethodException e) {  // of newer versions
                one = new DefaultMQProducer("recorded_traced");
                DefaultMQProducer.class.getMethod("setEnableTrace", boolean.class).invoke(one, true);
            }
            start(one);
            one.send(new Message(TOPIC, "TagA", "key", BODY));
            TimeUnit.SECONDS.sleep(1);
            one.shutdown();
        });
        acts.put("signed", () -> {
            Class<?> keys = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
            Object hook = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook").getConstructor(keys)
                .newInstance(keys.getConstructor(String.class, String.class).newInstance("recorder", "recorder-secret"));
            DefaultMQProducer one = new DefaultMQProducer("recorded_signed", (RPCHook) hook);
            start(one);
            one.send(new Message(TOPIC, "TagA", "订单-42", BODY));
            one.send(message());
            one.shutdown();
        });
        acts.put("namespaced", () -> {
            DefaultMQProducer one = new DefaultMQProducer("recorded_namespaced");
            Method set = DefaultMQProducer.class.getMethod("setNamespace", String.class);
            set.invoke(one, "MQ_INST_1");
            start(one);
            one.send(message());
            one.shutdown();
        });
        acts.put("namespaced-v2", () -> {
            DefaultMQProducer one = new DefaultMQProducer("recorded_namespaced_2");
            Method set = DefaultMQProducer.class.getMethod("setNamespaceV2", String.class);
            set.invoke(one, "MQ_INST_1");
            start(one);
            one.send(message());
            one.shutdown();
        });
        acts.put("unit-mode", () -> {
            DefaultMQProducer one = new DefaultMQProducer("recorded_unit");
            one.setUnitName("unit");
            one.setUnitMode(true);
            start(one);
            one.send(message());
            one.shutdown();
        });
    }

    private void transact(LocalTransactionState state) throws Exception {
        TransactionMQProducer one = new TransactionMQProducer("recorded_transactions");
        one.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        start(one);
        one.sendMessageInTransaction(new Message(TOPIC, "TagA", "order-1", BODY), null);
        TimeUnit.MILLISECONDS.sleep(300);  // its end is sent one-way
        one.shutdown();
    }

    private void defineConsumers() {
        acts.put("push", () -> push("recorded_push", "*", false, false));
        acts.put("push-tags", () -> push("recorded_push_tags", "TagA || TagB", false, false));
        acts.put("push-ordered", () -> push("recorded_push_ordered", "*", true, false));
        acts.put("push-sends-back", () -> push("recorded_push_back", "*", false, true));
        acts.put("push-sql", () -> {
            DefaultMQPushConsumer one = new DefaultMQPushConsumer("recorded_push_sql");
            one.subscribe(TOPIC, MessageSelector.bySql("TAGS = 'TagA' AND amount > 3"));
            consume(one, false, false, 0);
        });
        acts.put("pull", () -> {
            DefaultMQPullConsumer one = new DefaultMQPullConsumer("recorded_pull");
            one.setNamesrvAddr(namesrv);
            one.setInstanceName("recorded-" + System.nanoTime());
            one.start();
            for (MessageQueue queue : one.fetchSubscribeMessageQueues(TOPIC)) {
                one.minOffset(queue);
                one.maxOffset(queue);
                one.searchOffset(queue, System.currentTimeMillis());
                for (int i = 0; i < 3; i++) {
                    one.pull(queue, "*", i, 32);
                    one.pull(queue, "TagA", i, 1);
                }
                one.updateConsumeOffset(queue, 1);
                one.fetchConsumeOffset(queue, true);
            }
            one.shutdown();
        });
        acts.put("lite-pull", () -> {
            Class<?> type = Class.forName("org.apache.rocketmq.client.consumer.DefaultLitePullConsumer");
            Object one = type.getConstructor(String.class).newInstance("recorded_lite_pull");
            type.getMethod("setNamesrvAddr", String.class).invoke(one, namesrv);
            type.getMethod("setConsumeFromWhere", ConsumeFromWhere.class)
                .invoke(one, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            type.getMethod("subscribe", String.class, String.class).invoke(one, TOPIC, "*");
            type.getMethod("start").invoke(one);
            Method poll = type.getMethod("poll", long.class);
            for (int i = 0; i < 20 && ((List<?>) poll.invoke(one, 1_000L)).isEmpty(); i++) {
                Thread.yield();
            }
            type.getMethod("commitSync").invoke(one);
            TimeUnit.SECONDS.sleep(1);
            type.getMethod("shutdown").invoke(one);
        });
    }

    /** A consumer with messages to get, which sends the first one back if it is told to. */
    private void push(String group, String tags, boolean ordered, boolean sendsBack) throws Exception {
        DefaultMQPushConsumer one = new DefaultMQPushConsumer(group);
        one.subscribe(TOPIC, tags);
        consume(one, ordered, sendsBack, 2);
    }

    private void consume(DefaultMQPushConsumer one, boolean ordered, boolean sendsBack, int least) throws Exception {
        one.setNamesrvAddr(namesrv);
        one.setInstanceName("recorded-" + System.nanoTime());
        one.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
        if (ordered) {
            one.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                got.add("one");
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            one.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                got.add("one");
                return sendsBack && got.size() == 1 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        one.start();
        for (int i = 0; i < 300 && got.size() < least; i++) {
            TimeUnit.MILLISECONDS.sleep(100);
        }
        producer.send(new Message(TOPIC, "TagA", BODY));
        TimeUnit.SECONDS.sleep(7);  // offsets are sent every five seconds
        one.shutdown();
    }

    /** Pop is turned on at the broker; a 5.x push consumer then pops. */
    private void definePops() {
        acts.put("pop", () -> {
            DefaultMQPushConsumer one = new DefaultMQPushConsumer("recorded_pop");
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(one, false);
            one.subscribe(TOPIC, "*");
            consume(one, false, false, 2);
        });
        acts.put("pop-sends-back", () -> {
            DefaultMQPushConsumer one = new DefaultMQPushConsumer("recorded_pop_back");
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(one, false);
            one.subscribe(TOPIC, "*");
            consume(one, false, true, 2);
        });
        acts.put("request", () -> {
            Method request = DefaultMQProducer.class.getMethod("request", Message.class, long.class);
            List<Throwable> unanswered = new ArrayList<>();
            try {
                request.invoke(producer, message(), 1_000L);
            } catch (java.lang.reflect.InvocationTargetException e) {
                unanswered.add(e);  // nobody replies: its frame is what counts
            }
        });
    }

    private static void await(CountDownLatch latch) throws Exception {
        if (!latch.await(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("no answer within " + TIMEOUT_MS + " ms");
        }
    }
}
