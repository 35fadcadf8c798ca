package main

import (
	"context"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// request sends a message that asks for a reply, and gives the reply.
func request(a Args) (any, error) {
	var wanted Message
	if err := a.into("message", &wanted); err != nil {
		return nil, err
	}
	p, err := theProducer(a)
	if err != nil {
		return nil, err
	}
	reply, err := p.Request(context.Background(), a.timeout(), wanted.message())
	if err != nil {
		return nil, err
	}
	return map[string]any{"topic": reply.Topic, "body": string(reply.Body), "props": reply.GetProperties()}, nil
}

type replier struct {
	client rocketmq.PushConsumer
	lock   sync.Mutex
	failed string
}

var repliers = map[string]*replier{}

func (r *replier) reply(a Args, m *primitive.MessageExt) error {
	answer, err := consumer.CreateReplyMessage(m, nil)
	if err != nil {
		return err
	}
	answer.Body = append([]byte("re: "), m.Body...) // CreateReplyMessage takes a body for properties
	p, err := theProducer(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = p.SendSync(ctx, answer)
	return err
}

// startReplier consumes a topic and replies to each message with "re: " and its body.
func startReplier(a Args) (any, error) {
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(a.resolver()), consumer.WithInstance(instance("replier")),
		consumer.WithGroupName(a.text("group", "")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	r := &replier{client: client}
	err = client.Subscribe(a.text("topic", ""), consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range messages {
				if consumer.GetReplyToClient(m) == "" {
					continue // nobody asks
				}
				if err := r.reply(a, m); err != nil {
					r.lock.Lock()
					r.failed = err.Error()
					r.lock.Unlock()
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	return keep(repliers, "replier", r), nil
}

// stopReplier gives what went wrong last; "": nothing.
func stopReplier(a Args) (any, error) {
	r, err := find(repliers, a, true)
	if err != nil {
		return nil, nil // stopped before
	}
	if err := r.client.Shutdown(); err != nil {
		return nil, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.failed, nil
}
