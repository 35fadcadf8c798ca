package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.builder.DefaultAuthorizationContextBuilder;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.auth.converter.AclConverter;
import org.apache.rocketmq.common.action.Action;
import org.apache.rocketmq.common.resource.ResourcePattern;
import org.apache.rocketmq.common.resource.ResourceType;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;

/** What the original's classes for users and policies say, without a broker; and the keys that clients sign with. */
final class Auths {
    private Auths() {
    }

    static void register() {
        Agent.op("auth.asks", args -> {
            RequestHeaderRegistry.getInstance().initialize();
            return each(args.getJSONArray("requests"), request -> asks(args, request));
        });
        Agent.op("auth.decide", args -> each(args.getJSONArray("cases"), Auths::decide));
    }

    /** The hook that signs with `keys`, an access key and its secret; null where a command has none. */
    static RPCHook hook(JSONObject args) {
        JSONArray keys = args.getJSONArray("keys");
        return keys == null ? null : new AclClientRPCHook(new SessionCredentials(keys.getString(0), keys.getString(1)));
    }

    private interface Question {
        Object answer(JSONObject question) throws Exception;
    }

    private static List<Object> each(JSONArray questions, Question how) {
        List<Object> answers = new ArrayList<>();
        for (int i = 0; i < questions.size(); i++) {
            try {
                answers.add(how.answer(questions.getJSONObject(i)));
            } catch (Throwable e) {
                answers.add(Map.of("error", String.valueOf(e.getMessage())));
            }
        }
        return answers;
    }

    /** What a request asks for: pairs of a resource and actions. */
    private static Object asks(JSONObject args, JSONObject request) {
        AuthConfig config = new AuthConfig();
        config.setClusterName(args.getString("cluster"));
        RemotingCommand command = RemotingCommand.createRequestCommand(request.getIntValue("code"), null);
        command.setExtFields(new HashMap<>(request.getJSONObject("ext").to(Map.class)));
        command.getExtFields().put("AccessKey", "somebody");
        command.setBody(Base64.getDecoder().decode(request.getString("body")));
        List<Object> found = new ArrayList<>();
        for (DefaultAuthorizationContext context : new DefaultAuthorizationContextBuilder(config).build(somewhere(), command)) {
            found.add(List.of(context.getResource().getResourceKey(),
                context.getActions().stream().map(Action::getName).collect(Collectors.toList())));
        }
        return found;
    }

    private static ChannelHandlerContext somewhere() {
        ChannelInboundHandlerAdapter handler = new ChannelInboundHandlerAdapter();
        Channel channel = new EmbeddedChannel(handler) {
            @Override
            public SocketAddress remoteAddress() {
                return new InetSocketAddress("127.0.0.1", 1);
            }
        };
        return channel.pipeline().context(handler);
    }

    /** Whether a user's policies (an AclInfo) allow something: "" when they do, else what the exception says. */
    private static Object decide(JSONObject asked) {
        Acl acl = AclConverter.convertAcl(JSON.parseObject(asked.getString("acl"), AclInfo.class));
        JSONObject wanted = asked.getJSONObject("request");
        Resource resource = Resource.of(ResourceType.getByName(wanted.getString("type")), wanted.getString("name"),
            ResourcePattern.LITERAL);
        List<Action> actions = wanted.getList("actions", String.class).stream().map(Action::getByName)
            .collect(Collectors.toList());
        AuthConfig config = new AuthConfig();
        config.setConfigName("case " + System.nanoTime());
        config.setAuthorizationMetadataProvider(One.class.getName());
        DefaultAuthorizationContext context = DefaultAuthorizationContext.of(User.of("u"), resource, actions,
            wanted.getString("ip"));
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            new AclAuthorizationHandler(config, () -> acl).handle(context, null).join();
            answer.put("refused", "");
        } catch (RuntimeException e) {
            Throwable t = e.getCause() == null ? e : e.getCause();
            answer.put("refused", String.valueOf(t.getMessage()));
        }
        return answer;
    }

    /** The policies of one user, whoever it is. */
    public static final class One implements AuthorizationMetadataProvider {
        private Supplier<?> acl;

        @Override
        public void initialize(AuthConfig config, Supplier<?> acl) {
            this.acl = acl;
        }

        @Override
        public CompletableFuture<Acl> getAcl(Subject subject) {
            return CompletableFuture.completedFuture((Acl) acl.get());
        }

        @Override
        public void shutdown() {
        }

        @Override
        public CompletableFuture<Void> createAcl(Acl acl) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteAcl(Subject subject) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> updateAcl(Acl acl) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<List<Acl>> listAcl(String subjectFilter, String resourceFilter) {
            throw new UnsupportedOperationException();
        }
    }
}
