import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Stock producers with default settings, started one after the other: each sends, waits for its answer, pauses and sends
 * again. A line for each message that was acknowledged: producer, nanoseconds of the monotonic clock, the broker's port.
 * Arguments: name server, topic, producers, seconds between their starts, milliseconds between sends.
 */
public final class StockProducers {
    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[2]);
        long startPauseNanos = (long) (Double.parseDouble(args[3]) * 1e9);
        long sendPauseNanos = Long.parseLong(args[4]) * 1_000_000L;
        for (int i = 0; i < producers; i++) {
            DefaultMQProducer producer = new DefaultMQProducer("bench_stock_" + i);
            producer.setNamesrvAddr(args[0]);
            producer.setInstanceName("stock" + i);
            producer.start();
            int number = i;
            Thread thread = new Thread(() -> send(producer, args[1], number, sendPauseNanos));
            thread.setDaemon(true);
            thread.start();
            LockSupport.parkNanos(startPauseNanos);
        }
        System.in.read(); // until whoever started this goes away
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int number, long pauseNanos) {
        for (long sent = 0;; sent++) {
            try {
                SendResult result = producer.send(new Message(topic, Long.toString(sent).getBytes()));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    int port = Integer.parseInt(result.getOffsetMsgId().substring(8, 16), 16);
                    System.out.println(number + " " + System.nanoTime() + " " + port);
                    System.out.flush();
                } else {
                    System.err.println(number + " " + System.nanoTime() + " " + result.getSendStatus());
                }
            } catch (Exception e) {
                System.err.println(number + " " + System.nanoTime() + " " + e);
            }
            LockSupport.parkNanos(pauseNanos);
        }
    }
}
