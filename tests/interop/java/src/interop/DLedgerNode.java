package interop;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.io.FileInputStream;
import java.lang.reflect.Method;
import java.util.Properties;

/** A member of a DLedger group: the original's server, with the settings of a properties file (-c FILE). */
public final class DLedgerNode {
    private DLedgerNode() {}

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(args[1])) {
            settings.load(file);
        }
        DLedgerConfig config = new DLedgerConfig();
        for (Method setter : DLedgerConfig.class.getMethods()) {
            String name = setter.getName();
            if (!name.startsWith("set") || setter.getParameterCount() != 1) {
                continue;
            }
            String value = settings.getProperty(Character.toLowerCase(name.charAt(3)) + name.substring(4));
            Class<?> type = setter.getParameterTypes()[0];
            if (value == null) {
                continue;
            } else if (type == String.class) {
                setter.invoke(config, value);
            } else if (type == int.class) {
                setter.invoke(config, Integer.parseInt(value));
            } else if (type == long.class) {
                setter.invoke(config, Long.parseLong(value));
            } else if (type == boolean.class) {
                setter.invoke(config, Boolean.parseBoolean(value));
            }
        }
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
    }
}
