package interop;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** The names of all commands that mqadmin has. */
final class Commands extends MQAdminStartup {
    private Commands() {
    }

    static void register() {
        Agent.op("mqadmin.commands", args -> {
            List<String> names = new ArrayList<>();
            synchronized (Admins.class) {
                SUB_COMMANDS.clear();
                initCommand();
                for (SubCommand command : SUB_COMMANDS) {
                    names.add(command.commandName());
                }
            }
            return names;
        });
    }
}
