// All stock Go clients in one process: a command is a line of JSON on stdin, its answer a line of JSON on stdout.
//
// {"id":1,"op":"send",...} is answered by {"id":1,"ok":...} or {"id":1,"error":{"type","code","message"}}.
// Commands run at the same time; whoever wants an order waits for the answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Args is one command, as it came.
type Args map[string]json.RawMessage

type handler func(Args) (any, error)

var handlers = map[string]handler{
	"send":          send,
	"producer.stop": stopProducer,
	"push.start":    startPush,
	"push.await":    awaitPush,
	"push.stop":     stopPush,
	"tx.start":      startTransactions,
	"tx.send":       sendInTransaction,
	"tx.stop":       stopTransactions,
	"request":       request,
	"replier.start": startReplier,
	"replier.stop":  stopReplier,
	"pull.from":     pullFrom,
	"pull.start":    startPull,
	"pull.poll":     pollPull,
	"pull.stop":     stopPull,
	"topic.create":  createTopic,
	"topic.delete":  deleteTopic,
	"topic.list":    listTopics,
	"topic.queues":  topicQueues,
	"group.list":    listGroups,
}

var serial atomic.Int64

// instance is a name of its own for each client: clients of one name share their connections and name server.
func instance(kind string) string {
	return fmt.Sprintf("go-%s-%d-%d", kind, os.Getpid(), serial.Add(1))
}

func (a Args) text(name, missing string) string {
	value := missing
	if raw, ok := a[name]; ok {
		_ = json.Unmarshal(raw, &value)
	}
	return value
}

func (a Args) number(name string, missing int) int {
	value := missing
	if raw, ok := a[name]; ok {
		_ = json.Unmarshal(raw, &value)
	}
	return value
}

func (a Args) into(name string, value any) error {
	if err := json.Unmarshal(a[name], value); err != nil {
		return fmt.Errorf("argument %s: %w", name, err)
	}
	return nil
}

func (a Args) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{a.text("namesrv", "")})
}

// keys is who a client signs as; empty where a command says nothing of it.
func (a Args) keys() primitive.Credentials {
	pair := []string{"", ""}
	if raw, ok := a["keys"]; ok {
		_ = json.Unmarshal(raw, &pair)
	}
	return primitive.Credentials{AccessKey: pair[0], SecretKey: pair[1]}
}

func (a Args) timeout() time.Duration {
	return time.Duration(a.number("timeoutMs", 10000)) * time.Millisecond
}

// Queue names a queue as the commands do.
type Queue struct {
	Topic   string `json:"topic"`
	Broker  string `json:"broker"`
	QueueID int    `json:"queueId"`
}

func (q Queue) mq() *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: q.Topic, BrokerName: q.Broker, QueueId: q.QueueID}
}

func plain(m *primitive.MessageExt) map[string]any {
	broker, queueID := "", -1
	if m.Queue != nil {
		broker, queueID = m.Queue.BrokerName, m.Queue.QueueId
	}
	return map[string]any{
		"topic": m.Topic, "broker": broker, "queueId": queueID, "queueOffset": m.QueueOffset,
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "commitLogOffset": m.CommitLogOffset,
		"tags": m.GetTags(), "keys": m.GetKeys(), "props": m.GetProperties(), "body": string(m.Body),
		"bodySize": len(m.Body), "flag": m.Flag, "sysFlag": m.SysFlag, "bornHost": m.BornHost,
		"storeHost": m.StoreHost, "bornTimestamp": m.BornTimestamp, "storeTimestamp": m.StoreTimestamp,
		"reconsumeTimes": m.ReconsumeTimes, "at": time.Now().UnixMilli(),
	}
}

func plains(messages []*primitive.MessageExt) []any {
	list := make([]any, 0, len(messages))
	for _, m := range messages {
		list = append(list, plain(m))
	}
	return list
}

func withAdmin(a Args, run func(context.Context, admin.Admin) (any, error)) (any, error) {
	client, err := admin.NewAdmin(admin.WithResolver(a.resolver()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout())
	defer cancel()
	return run(ctx, client)
}

func createTopic(a Args) (any, error) {
	return withAdmin(a, func(ctx context.Context, client admin.Admin) (any, error) {
		return true, client.CreateTopic(ctx, admin.WithTopicCreate(a.text("topic", "")),
			admin.WithBrokerAddrCreate(a.text("brokerAddr", "")),
			admin.WithReadQueueNums(a.number("queues", 4)), admin.WithWriteQueueNums(a.number("queues", 4)))
	})
}

func deleteTopic(a Args) (any, error) {
	return withAdmin(a, func(ctx context.Context, client admin.Admin) (any, error) {
		return true, client.DeleteTopic(ctx, admin.WithTopicDelete(a.text("topic", "")),
			admin.WithBrokerAddrDelete(a.text("brokerAddr", "")))
	})
}

func listTopics(a Args) (any, error) {
	return withAdmin(a, func(ctx context.Context, client admin.Admin) (any, error) {
		list, err := client.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return list.TopicList, nil
	})
}

func listGroups(a Args) (any, error) {
	return withAdmin(a, func(ctx context.Context, client admin.Admin) (any, error) {
		groups, err := client.GetAllSubscriptionGroup(ctx, a.text("brokerAddr", ""), a.timeout())
		if err != nil {
			return nil, err
		}
		return groups.SubscriptionGroupTable, nil
	})
}

func topicQueues(a Args) (any, error) {
	return withAdmin(a, func(ctx context.Context, client admin.Admin) (any, error) {
		queues, err := client.FetchPublishMessageQueues(ctx, a.text("topic", ""))
		list := make([]Queue, 0, len(queues))
		for _, q := range queues {
			list = append(list, Queue{q.Topic, q.BrokerName, q.QueueId})
		}
		return list, err
	})
}

func answer(line []byte) map[string]any {
	var args Args
	if err := json.Unmarshal(line, &args); err != nil {
		return map[string]any{"error": failure(err)}
	}
	reply := map[string]any{"id": args.number("id", 0)}
	run, known := handlers[args.text("op", "")]
	if !known {
		reply["error"] = failure(fmt.Errorf("no such op: %s", args.text("op", "")))
		return reply
	}
	ok, err := run(args)
	if err != nil {
		reply["error"] = failure(err)
	} else {
		reply["ok"] = ok
	}
	return reply
}

// failure tells the response code where the client gives one in its text ("CODE: 17  DESC: ...").
func failure(err error) map[string]any {
	code := 0
	if at := strings.Index(err.Error(), "CODE: "); at >= 0 {
		_, _ = fmt.Sscanf(err.Error()[at:], "CODE: %d", &code)
	}
	return map[string]any{"type": fmt.Sprintf("%T", err), "code": code, "message": err.Error()}
}

func main() {
	rlog.SetLogLevel("warn")
	if err := rlog.SetOutputPath("client.log"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	var lock sync.Mutex
	answers := os.Stdout
	os.Stdout = os.Stderr
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		go func() {
			text, err := json.Marshal(answer(line))
			if err != nil {
				panic(err)
			}
			lock.Lock()
			defer lock.Unlock()
			_, _ = answers.Write(append(text, '\n'))
		}()
	}
}
