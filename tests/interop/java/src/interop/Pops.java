package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopLiteMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** POP by the client's own calls: pop, ack, batch ack, change of the invisible time. */
@SuppressWarnings("deprecation")
final class Pops {
    private static final long TIMEOUT_MS = 20_000;
    private static final Map<String, DefaultMQPullConsumer> CLIENTS = new ConcurrentHashMap<>();

    private Pops() {
    }

    static void register() {
        Agent.op("pop", Pops::pop);
        Agent.op("pop.ack", args -> {
            CompletableFuture<AckResult> done = new CompletableFuture<>();
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            String[] handle = ExtraInfoUtil.split(args.getString("handle"));
            header.setTopic(ExtraInfoUtil.getRealTopic(handle, args.getString("topic"), args.getString("group")));
            header.setQueueId(ExtraInfoUtil.getQueueId(handle));
            header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
            header.setConsumerGroup(args.getString("group"));
            header.setExtraInfo(args.getString("handle"));
            header.setLiteTopic(args.getString("lite"));
            api(args).ackMessageAsync(args.getString("broker"), TIMEOUT_MS, callback(done), header);
            return done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus().name();
        });
        Agent.op("pop.ackAll", args -> {
            CompletableFuture<AckResult> done = new CompletableFuture<>();
            api(args).batchAckMessageAsync(args.getString("broker"), TIMEOUT_MS, callback(done),
                args.getString("topic"), args.getString("group"),
                args.getList("handles", String.class));
            return done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus().name();
        });
        Agent.op("pop.lite", Pops::popLite);
        Agent.op("pop.change", args -> {
            CompletableFuture<AckResult> done = new CompletableFuture<>();
            ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
            String[] handle = ExtraInfoUtil.split(args.getString("handle"));
            header.setTopic(ExtraInfoUtil.getRealTopic(handle, args.getString("topic"), args.getString("group")));
            header.setQueueId(ExtraInfoUtil.getQueueId(handle));
            header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
            header.setConsumerGroup(args.getString("group"));
            header.setExtraInfo(args.getString("handle"));
            header.setInvisibleTime(args.getLongValue("invisibleMs"));
            header.setLiteTopic(args.getString("lite"));
            api(args).changeInvisibleTimeAsync(ExtraInfoUtil.getBrokerName(handle), args.getString("broker"), header,
                TIMEOUT_MS, callback(done));
            AckResult result = done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("status", result.getStatus().name());
            found.put("handle", result.getExtraInfo());
            return found;
        });
    }

    private static MQClientAPIImpl api(JSONObject args) throws Exception {
        String namesrv = args.getString("namesrv");
        synchronized (CLIENTS) {
            DefaultMQPullConsumer client = CLIENTS.get(namesrv);
            if (client == null) {
                client = new DefaultMQPullConsumer("pops");
                client.setNamesrvAddr(namesrv);
                client.setInstanceName("p" + System.nanoTime());
                client.start();
                CLIENTS.put(namesrv, client);
            }
            return client.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
        }
    }

    private static Object popLite(JSONObject args) throws Exception {
        PopLiteMessageRequestHeader header = new PopLiteMessageRequestHeader();
        header.setClientId(args.getString("client"));
        header.setConsumerGroup(args.getString("group"));
        header.setTopic(args.getString("topic"));
        header.setMaxMsgNum(args.getIntValue("count", 32));
        header.setInvisibleTime(args.getLongValue("invisibleMs", 60_000));
        long wait = args.getLongValue("waitMs", 0);
        header.setPollTime(wait);
        header.setBornTime(System.currentTimeMillis());
        CompletableFuture<PopResult> done = new CompletableFuture<>();
        api(args).popLiteMessageAsync(args.getString("brokerName"), args.getString("broker"), header,
            wait + TIMEOUT_MS, popped(done));
        return found(done.get(wait + TIMEOUT_MS, TimeUnit.MILLISECONDS));
    }

    private static Object pop(JSONObject args) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(args.getString("group"));
        header.setTopic(args.getString("topic"));
        header.setQueueId(args.getIntValue("queueId", -1));
        header.setMaxMsgNums(args.getIntValue("count", 32));
        header.setInvisibleTime(args.getLongValue("invisibleMs", 60_000));
        header.setInitMode(args.getIntValue("initMode", 0));
        header.setExpType(args.getString("expType"));
        header.setExp(args.getString("exp"));
        header.setOrder(args.getBooleanValue("ordered"));
        header.setAttemptId(args.getString("attempt"));
        long wait = args.getLongValue("waitMs", 0);
        header.setPollTime(wait);
        header.setBornTime(System.currentTimeMillis());
        CompletableFuture<PopResult> done = new CompletableFuture<>();
        api(args).popMessageAsync(args.getString("brokerName"), args.getString("broker"), header, wait + TIMEOUT_MS,
            popped(done));
        return found(done.get(wait + TIMEOUT_MS, TimeUnit.MILLISECONDS));
    }

    private static PopCallback popped(CompletableFuture<PopResult> done) {
        return new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                done.completeExceptionally(e);
            }
        };
    }

    private static Object found(PopResult result) {
        List<Map<String, Object>> messages = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt m : result.getMsgFoundList()) {
                Map<String, Object> one = Plain.message(m);
                one.put("handle", m.getProperty(MessageConst.PROPERTY_POP_CK));
                one.put("at", System.currentTimeMillis());
                messages.add(one);
            }
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("status", result.getPopStatus().name());
        found.put("rest", result.getRestNum());
        found.put("messages", messages);
        return found;
    }

    private static AckCallback callback(CompletableFuture<AckResult> done) {
        return new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                done.completeExceptionally(e);
            }
        };
    }
}
