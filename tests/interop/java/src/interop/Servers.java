package interop;

/** A server inside of the agent: what it loads can be archived together with what the clients load. */
final class Servers {
    private Servers() {
    }

    static void register() {
        Agent.op("serve", args -> {
            String[] line = {"-c", args.getString("conf")};
            Class.forName(args.getString("main")).getMethod("main", String[].class).invoke(null, (Object) line);
            return true;
        });
    }
}
