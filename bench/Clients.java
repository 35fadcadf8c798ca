import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The stock Java clients under the loads of client_load.py, which says what each kind is. A line for each time: messages,
 * nanoseconds, nanoseconds of CPU of the whole process. Arguments: kind, name server, topic, messages, times.
 */
public final class Clients {
    private static final int IN_FLIGHT = 512, BATCH = 32, BATCHES = 16, LINGER_MS = 5, TIMEOUT_MS = 30_000;
    private static final byte[] BODY = "x".repeat(100).getBytes();
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final AtomicLong BEGAN = new AtomicLong(), SPENT = new AtomicLong();

    public static void main(String[] args) throws Exception {
        long wanted = Long.parseLong(args[3]);
        for (int time = 0; time < Integer.parseInt(args[4]); time++) {
            String name = "bench-java-" + args[0] + "-" + System.nanoTime();
            BEGAN.set(0);
            long found = switch (args[0]) {
                case "send", "linger", "batch" -> send(args[0], args[1], args[2], wanted, name);
                case "pull" -> pull(args[1], args[2], wanted, name);
                case "push" -> push(args[1], args[2], wanted, name);
                default -> throw new IllegalArgumentException("no such kind: " + args[0]);
            };
            long nanos = System.nanoTime() - BEGAN.get(), used = SYSTEM.getProcessCpuTime() - SPENT.get();
            System.out.println(found + " " + nanos + " " + used);
            System.out.flush();
        }
        System.exit(0);
    }

    private static void begin() {
        if (BEGAN.compareAndSet(0, System.nanoTime())) {
            SPENT.set(SYSTEM.getProcessCpuTime());
        }
    }

    private static long send(String kind, String namesrv, String topic, long wanted, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        if (kind.equals("linger")) {
            producer.setAutoBatch(true);
            producer.batchMaxDelayMs(LINGER_MS);
        }
        producer.start();
        producer.send(new Message(topic, BODY));
        int each = kind.equals("batch") ? BATCH : 1, most = kind.equals("batch") ? BATCHES : IN_FLIGHT;
        Semaphore room = new Semaphore(most);
        AtomicLong failed = new AtomicLong();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                if (failed.incrementAndGet() == 1) {
                    error.printStackTrace();
                }
                room.release();
            }
        };
        begin();
        long sent = 0;
        while (sent < wanted) {
            room.acquire();
            if (each == 1) {
                producer.send(new Message(topic, BODY), callback);
            } else {
                List<Message> messages = new ArrayList<>(each);
                for (int i = 0; i < each; i++) {
                    messages.add(new Message(topic, BODY));
                }
                producer.send(messages, callback);
            }
            sent += each;
        }
        room.acquire(most);
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " sends failed");
        }
        long nanos = System.nanoTime(), used = SYSTEM.getProcessCpuTime();
        producer.shutdown();
        BEGAN.addAndGet(System.nanoTime() - nanos);  // the shutdown does not count
        SPENT.addAndGet(SYSTEM.getProcessCpuTime() - used);
        return sent;
    }

    private static long sizes(List<MessageExt> messages) {
        long size = 0;
        for (MessageExt message : messages) {
            size += message.getBody().length + message.getProperties().size();
        }
        return size;
    }

    private static long pull(String namesrv, String topic, long wanted, String name) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(name);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(BATCH);
        consumer.start();
        var queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        for (var queue : queues) {
            consumer.seekToBegin(queue);
        }
        begin();
        long found = 0, size = 0;
        while (found < wanted) {
            List<MessageExt> messages = consumer.poll();
            size += sizes(messages);
            found += messages.size();
        }
        long nanos = System.nanoTime(), used = SYSTEM.getProcessCpuTime();
        consumer.shutdown();
        BEGAN.addAndGet(System.nanoTime() - nanos);
        SPENT.addAndGet(SYSTEM.getProcessCpuTime() - used);
        return found;
    }

    private static long push(String namesrv, String topic, long wanted, String name) throws Exception {
        AtomicLong found = new AtomicLong(), size = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            begin();
            size.addAndGet(sizes(list));
            if (found.addAndGet(list.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        long counted = found.get(), nanos = System.nanoTime(), used = SYSTEM.getProcessCpuTime();
        consumer.shutdown();
        BEGAN.addAndGet(System.nanoTime() - nanos);
        SPENT.addAndGet(SYSTEM.getProcessCpuTime() - used);
        return counted;
    }
}
