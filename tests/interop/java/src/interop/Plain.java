package interop;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Java objects as plain JSON values: beans by their fields, maps with object keys as lists of pairs. */
final class Plain {
    private static final int SHORT_BODY = 2048;

    private Plain() {
    }

    static Object of(Object value) throws IllegalAccessException {
        if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) {
            return value;
        } else if (value instanceof Enum) {
            return ((Enum<?>) value).name();
        } else if (value instanceof MessageExt) {
            return message((MessageExt) value);
        } else if (value instanceof MessageQueue) {
            return queue((MessageQueue) value);
        } else if (value instanceof Map) {
            return map((Map<?, ?>) value);
        } else if (value instanceof Collection) {
            List<Object> list = new ArrayList<>();
            for (Object item : (Collection<?>) value) {
                list.add(of(item));
            }
            return list;
        } else if (value.getClass().getName().startsWith("org.apache.rocketmq.")) {
            return bean(value);
        }
        return value.toString();
    }

    private static Object map(Map<?, ?> map) throws IllegalAccessException {
        boolean simple = true;
        for (Object key : map.keySet()) {
            simple &= key instanceof String || key instanceof Number || key instanceof Enum;
        }
        Map<String, Object> object = new LinkedHashMap<>();
        List<Object> pairs = new ArrayList<>();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            if (simple) {
                object.put(entry.getKey().toString(), of(entry.getValue()));
            } else {
                pairs.add(List.of(of(entry.getKey()), of(entry.getValue())));
            }
        }
        return simple ? object : pairs;
    }

    private static Object bean(Object value) throws IllegalAccessException {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (Class<?> c = value.getClass(); c != Object.class; c = c.getSuperclass()) {
            if (!c.getName().startsWith("org.apache.rocketmq.")) {
                break;
            }
            for (Field field : c.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.put(field.getName(), of(field.get(value)));
                }
            }
        }
        return fields;
    }

    static Map<String, Object> message(MessageExt m) {
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        CRC32 crc = new CRC32();
        crc.update(body);
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("topic", m.getTopic());
        o.put("broker", m.getBrokerName());
        o.put("queueId", m.getQueueId());
        o.put("queueOffset", m.getQueueOffset());
        o.put("msgId", m.getMsgId());
        o.put("offsetMsgId", m instanceof MessageClientExt ? ((MessageClientExt) m).getOffsetMsgId() : m.getMsgId());
        o.put("commitLogOffset", m.getCommitLogOffset());
        o.put("tags", m.getTags());
        o.put("keys", m.getKeys());
        // A copy: the client goes on changing those of a message that it retries, while the answer is being written.
        o.put("props", m.getProperties() == null ? null : new LinkedHashMap<>(m.getProperties()));
        o.put("body", body.length <= SHORT_BODY ? new String(body, StandardCharsets.UTF_8) : null);
        o.put("bodySize", body.length);
        o.put("bodyCrc", crc.getValue());
        o.put("flag", m.getFlag());
        o.put("sysFlag", m.getSysFlag());
        o.put("bornTimestamp", m.getBornTimestamp());
        o.put("storeTimestamp", m.getStoreTimestamp());
        o.put("bornHost", String.valueOf(m.getBornHost()));
        o.put("storeHost", String.valueOf(m.getStoreHost()));
        o.put("reconsumeTimes", m.getReconsumeTimes());
        o.put("storeSize", m.getStoreSize());
        return o;
    }

    static Map<String, Object> queue(MessageQueue q) {
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("topic", q.getTopic());
        o.put("broker", q.getBrokerName());
        o.put("queueId", q.getQueueId());
        return o;
    }

    static List<Object> queues(Collection<MessageQueue> queues) {
        List<MessageQueue> sorted = new ArrayList<>(queues);
        sorted.sort(null);
        List<Object> list = new ArrayList<>();
        sorted.forEach(q -> list.add(queue(q)));
        return list;
    }

    static List<Object> messages(Collection<? extends MessageExt> messages) {
        List<Object> list = new ArrayList<>();
        messages.forEach(m -> list.add(message(m)));
        return list;
    }
}
