package interop;

import com.google.common.hash.Hashing;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** The names of all commands that mqadmin has, and what a library of the original computes. */
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
        Agent.op("consistentHash", args -> {
            List<Integer> found = new ArrayList<>();
            for (String text : args.getList("texts", String.class)) {
                found.add(Hashing.consistentHash(text.hashCode(), args.getIntValue("buckets")));
            }
            return found;
        });
    }
}
