// Does what users of the Go client do, one kind after the other: a kind is a line on stdin, "done KIND" or
// "failed KIND why" the answer. The first line names the kinds.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	topic    = "recorded"
	timeout  = 20 * time.Second
	messages = 2
)

var (
	namesrv []string
	serial  atomic.Int64
)

func instance() string { return fmt.Sprintf("recorded-%d-%d", os.Getpid(), serial.Add(1)) }

func message() *primitive.Message { return primitive.NewMessage(topic, []byte("recorded body")) }

func start(options ...producer.Option) (rocketmq.Producer, error) {
	all := append([]producer.Option{
		producer.WithNameServer(namesrv), producer.WithInstanceName(instance()), producer.WithSendMsgTimeout(timeout),
	}, options...)
	one, err := rocketmq.NewProducer(all...)
	if err == nil {
		err = one.Start()
	}
	return one, err
}

func send(messages ...*primitive.Message) func() error {
	return func() error {
		one, err := start(producer.WithGroupName("recorded_producer"))
		if err != nil {
			return err
		}
		_, err = one.SendSync(context.Background(), messages...)
		return join(err, one.Shutdown())
	}
}

func join(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func with(name, value string) *primitive.Message {
	one := message()
	one.WithProperty(name, value)
	return one
}

type decision primitive.LocalTransactionState

func (d decision) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.LocalTransactionState(d)
}

func (d decision) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func transact(state primitive.LocalTransactionState) func() error {
	return func() error {
		one, err := rocketmq.NewTransactionProducer(decision(state), producer.WithNameServer(namesrv),
			producer.WithGroupName("recorded_transactions"), producer.WithInstanceName(instance()))
		if err != nil {
			return err
		}
		if err := one.Start(); err != nil {
			return err
		}
		_, err = one.SendMessageInTransaction(context.Background(), message().WithTag("TagA"))
		time.Sleep(300 * time.Millisecond) // its end is sent one-way
		return join(err, one.Shutdown())
	}
}

func push(group string, selector consumer.MessageSelector, ordered, sendsBack bool) func() error {
	return func() error {
		one, err := rocketmq.NewPushConsumer(consumer.WithNameServer(namesrv), consumer.WithGroupName(group),
			consumer.WithInstance(instance()), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
			consumer.WithConsumerOrder(ordered))
		if err != nil {
			return err
		}
		var got atomic.Int64
		handle := func(_ context.Context, _ ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if got.Add(1) == 1 && sendsBack {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		}
		if err := one.Subscribe(topic, selector, handle); err != nil {
			return err
		}
		if err := one.Start(); err != nil {
			return err
		}
		for i := 0; i < 300 && got.Load() < messages; i++ {
			time.Sleep(100 * time.Millisecond)
		}
		err = send(message().WithTag("TagA"))()
		time.Sleep(7 * time.Second) // offsets are sent every five seconds
		return join(err, one.Shutdown())
	}
}

func kinds() map[string]func() error {
	tags := consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagB"}
	all := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	sql := consumer.MessageSelector{Type: consumer.SQL92, Expression: "TAGS = 'TagA' AND amount > 3"}
	many := message().WithTag("TagA").WithKeys([]string{"key"})
	for i := 0; i < 20; i++ {
		many.WithProperty(fmt.Sprintf("property-%d", i), fmt.Sprintf("value of %d", i))
	}
	return map[string]func() error{
		"plain":           send(message()),
		"tag":             send(message().WithTag("TagA")),
		"tag-and-keys":    send(message().WithTag("TagA").WithKeys([]string{"order-1", "order-2"})),
		"chinese-key":     send(message().WithTag("标签").WithKeys([]string{"订单-42", "键"})),
		"emoji-property":  send(with("mood", "\U0001F600 fine")),
		"json-property":   send(with("trace", `{"id": "a\b", "hops": [1, 2]}`)),
		"many-properties": send(many),
		"delay-level":     send(message().WithDelayTimeLevel(3)),
		"delay-seconds":   send(with("TIMER_DELAY_SEC", "30")),
		"priority":        send(with("_SYS_MSG_PRIORITY_", "3")),
		"ordered":         send(message().WithShardingKey("customer-7")),
		"compressed":      send(primitive.NewMessage(topic, make([]byte, 20_000))),
		"batch":           send(message().WithTag("TagA"), message().WithTag("TagB").WithKeys([]string{"键"}), message()),
		"one-way": func() error {
			one, err := start(producer.WithGroupName("recorded_producer"))
			if err != nil {
				return err
			}
			err = one.SendOneWay(context.Background(), message())
			time.Sleep(300 * time.Millisecond)
			return join(err, one.Shutdown())
		},
		"async": func() error {
			one, err := start(producer.WithGroupName("recorded_producer"))
			if err != nil {
				return err
			}
			sent := make(chan error, 1)
			err = one.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, e error) { sent <- e }, message())
			if err == nil {
				err = <-sent
			}
			return join(err, one.Shutdown())
		},
		"namespaced": func() error {
			one, err := start(producer.WithGroupName("recorded_namespaced"), producer.WithNamespace("MQ_INST_1"))
			if err != nil {
				return err
			}
			_, err = one.SendSync(context.Background(), message())
			return join(err, one.Shutdown())
		},
		"signed": func() error {
			keys := primitive.Credentials{AccessKey: "recorder", SecretKey: "recorder-secret"}
			one, err := start(producer.WithGroupName("recorded_signed"), producer.WithCredentials(keys))
			if err != nil {
				return err
			}
			_, err = one.SendSync(context.Background(), message().WithTag("TagA"))
			return join(err, one.Shutdown())
		},
		"commit":          transact(primitive.CommitMessageState),
		"rollback":        transact(primitive.RollbackMessageState),
		"push":            push("recorded_push", all, false, false),
		"push-tags":       push("recorded_push_tags", tags, false, false),
		"push-sql":        push("recorded_push_sql", sql, false, false),
		"push-ordered":    push("recorded_push_ordered", all, true, false),
		"push-sends-back": push("recorded_push_back", all, false, true),
	}
}

func main() {
	rlog.SetLogLevel("error")
	namesrv = []string{os.Args[1]}
	acts := kinds()
	names := make([]string, 0, len(acts))
	for name := range acts {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Println("kinds", strings.Join(names, " "))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := acts[in.Text()](); err != nil {
			fmt.Println("failed", in.Text(), strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("done", in.Text())
		}
	}
}
