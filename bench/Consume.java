import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A plain consumer: reads all messages of a topic, again and again, each time as a new group, and adds up the lengths of
 * their bodies and properties. A line for each time: messages, nanoseconds from the first to the last message, nanoseconds
 * of CPU of the whole process meanwhile. Arguments: name server, topic, messages, times, a prefix for groups.
 */
public final class Consume {
    public static void main(String[] args) throws Exception {
        long wanted = Long.parseLong(args[2]);
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (int time = 0; time < Integer.parseInt(args[3]); time++) {
            AtomicLong messages = new AtomicLong(), bytes = new AtomicLong(), began = new AtomicLong(), cpu = new AtomicLong();
            CountDownLatch done = new CountDownLatch(1);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4] + time);
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName("bench" + time);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeMessageBatchMaxSize(32);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
                if (began.compareAndSet(0, System.nanoTime())) {
                    cpu.set(system.getProcessCpuTime());
                }
                long size = 0;
                for (var message : list) {
                    size += message.getBody().length + message.getProperties().size();
                }
                bytes.addAndGet(size);
                if (messages.addAndGet(list.size()) >= wanted) {
                    done.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            done.await();
            long nanos = System.nanoTime() - began.get(), used = system.getProcessCpuTime() - cpu.get();
            System.out.println(messages.get() + " " + nanos + " " + used + " " + bytes.get());
            System.out.flush();
            consumer.shutdown();
        }
        System.exit(0);
    }
}
