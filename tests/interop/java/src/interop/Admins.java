package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The admin client's methods by name, and mqadmin's commands with what they print. */
final class Admins {
    private static final Map<String, DefaultMQAdminExt> ADMINS = new ConcurrentHashMap<>();

    private Admins() {
    }

    static void register() {
        Agent.op("admin", Admins::call);
        Agent.op("admin.stop", args -> {
            DefaultMQAdminExt admin = ADMINS.remove(key(args));
            if (admin != null) {
                admin.shutdown();
            }
            return admin != null;
        });
        Agent.op("mqadmin", Admins::mqadmin);
    }

    private static String key(JSONObject args) {
        return args.getString("namesrv") + " " + args.getOrDefault("keys", "");
    }

    private static DefaultMQAdminExt admin(JSONObject args) throws Exception {
        synchronized (ADMINS) {
            DefaultMQAdminExt admin = ADMINS.get(key(args));
            if (admin == null) {
                admin = new DefaultMQAdminExt(Auths.hook(args), 10_000);
                admin.setAdminExtGroup("interop_admin");
                admin.setNamesrvAddr(args.getString("namesrv"));
                admin.setInstanceName("a" + System.nanoTime());
                admin.start();
                ADMINS.put(key(args), admin);
            }
            return admin;
        }
    }

    /** Calls the method `call` that takes `args`; of several, the first whose parameters they fit. */
    private static Object call(JSONObject args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        JSONArray given = args.containsKey("args") ? args.getJSONArray("args") : new JSONArray();
        List<String> misfits = new ArrayList<>();
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (!method.getName().equals(args.getString("call")) || method.getParameterCount() != given.size()) {
                continue;
            }
            Object[] values = new Object[given.size()];
            try {
                Type[] types = method.getGenericParameterTypes();
                for (int i = 0; i < values.length; i++) {
                    values[i] = argument(given.get(i), method.getParameterTypes()[i], types[i]);
                }
            } catch (RuntimeException e) {
                misfits.add(method + ": " + e);
                continue;
            }
            try {
                Object result = method.invoke(admin, values);
                return result instanceof QueryResult ? Plain.messages(((QueryResult) result).getMessageList())
                    : Plain.of(result);
            } catch (InvocationTargetException e) {
                throw (Exception) e.getCause();
            }
        }
        throw new IllegalArgumentException("no such method: " + args + " " + misfits);
    }

    private static Object argument(Object value, Class<?> type, Type generic) {
        if (value == null) {
            return null;
        }
        if ((type == String.class) != (value instanceof String) && !type.isEnum()) {
            throw new IllegalArgumentException("wants " + type + ", got " + value);
        }
        if (type == Properties.class) {
            Properties properties = new Properties();
            ((JSONObject) value).forEach((k, v) -> properties.setProperty(k, String.valueOf(v)));
            return properties;
        }
        if (type.getSimpleName().equals("MessageQueue")) {
            return Sends.queue((JSONObject) value);
        }
        return value instanceof String && type == String.class ? value
            : JSON.parseObject(JSON.toJSONString(value), generic);
    }

    /** Commands keep the client of their first run, which is shut down; the next run makes them anew. */
    private static void forgetCommands() throws ReflectiveOperationException {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        ((Collection<?>) commands.get(null)).clear();
    }

    /** What a command of mqadmin prints; one at a time, for they print to the JVM's standard output. */
    private static synchronized Object mqadmin(JSONObject args) throws ReflectiveOperationException {
        forgetCommands();
        PrintStream before = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream into = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(into);
        System.setErr(into);
        Thread waker = new Thread(new Waker());
        waker.setDaemon(true);
        waker.start();
        try {
            MQAdminStartup.main0(args.getList("args", String.class).toArray(new String[0]), null);
        } finally {
            System.setOut(before);
            System.setErr(errors);
            waker.interrupt();
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /**
     * Spares each command the 3 s that its shutdown often waits for the client's event thread, which sleeps on an
     * empty queue: wakes the event threads that the command started.
     */
    private static final class Waker implements Runnable {
        private final Set<Thread> older = eventThreads();

        private static Set<Thread> eventThreads() {
            Set<Thread> threads = new HashSet<>(Thread.getAllStackTraces().keySet());
            threads.removeIf(thread -> !thread.getName().startsWith("NettyEventExecutor"));
            return threads;
        }

        @Override
        public void run() {
            try {
                while (true) {
                    Thread.sleep(50);
                    for (Thread thread : eventThreads()) {
                        if (!older.contains(thread) && thread.getState() == Thread.State.TIMED_WAITING) {
                            thread.interrupt();
                        }
                    }
                }
            } catch (InterruptedException e) {
                // the command is done
            }
        }
    }
}
