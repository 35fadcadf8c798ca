package main

import (
	"context"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func init() {
	handlers["request"] = request
	handlers["replier.start"] = startReplier
	handlers["replier.stop"] = stopReplier
}

func requester(a Args, group string) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(a.resolver()), producer.WithInstanceName(instance("request")),
		producer.WithGroupName(group), producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// The reply's topic, body and properties.
func request(a Args) (any, error) {
	var wanted Message
	if err := a.into("message", &wanted); err != nil {
		return nil, err
	}
	p, err := requester(a, "interop_go_requester")
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Shutdown() }()
	reply, err := p.Request(context.Background(), time.Duration(a.number("timeoutMs", 30000))*time.Millisecond, wanted.message())
	if err != nil {
		return nil, err
	}
	return map[string]any{"topic": reply.Topic, "body": string(reply.Body), "props": reply.GetProperties()}, nil
}

// Answers with what was asked behind "re: ".
type replier struct {
	client   rocketmq.PushConsumer
	producer rocketmq.Producer
}

var repliers = map[string]*replier{}

func startReplier(a Args) (any, error) {
	p, err := requester(a, "interop_go_replier")
	if err != nil {
		return nil, err
	}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(a.resolver()), consumer.WithInstance(instance("replier")),
		consumer.WithGroupName(a.text("group", "")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	answer := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, append([]byte("re: "), m.Body...))
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			if _, err := p.SendSync(ctx, reply); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := client.Subscribe(a.text("topic", ""), consumer.MessageSelector{}, answer); err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	return keep(repliers, "replier", &replier{client: client, producer: p}), nil
}

func stopReplier(a Args) (any, error) {
	r, err := find(repliers, a, true)
	if err != nil {
		return nil, err
	}
	_ = r.client.Shutdown()
	return true, r.producer.Shutdown()
}
