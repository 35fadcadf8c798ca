package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Message is what a command wants sent.
type Message struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       []string          `json:"keys"`
	Props      map[string]string `json:"props"`
	DelayLevel int               `json:"delayLevel"`
	Key        string            `json:"key"`
	Queue      *Queue            `json:"queue"`
}

func (m Message) message() *primitive.Message {
	message := primitive.NewMessage(m.Topic, []byte(m.Body))
	for k, v := range m.Props {
		message.WithProperty(k, v)
	}
	if m.Tags != "" {
		message.WithTag(m.Tags)
	}
	if len(m.Keys) > 0 {
		message.WithKeys(m.Keys)
	}
	if m.DelayLevel > 0 {
		message.WithDelayTimeLevel(m.DelayLevel)
	}
	if m.Key != "" {
		message.WithShardingKey(m.Key)
	}
	if m.Queue != nil {
		message.Queue = m.Queue.mq()
	}
	return message
}

var (
	producerLock sync.Mutex
	producers    = map[string]rocketmq.Producer{}
)

func producerKey(a Args) string {
	return a.text("namesrv", "") + " " + a.text("mode", "sync") + " " + a.text("trace", "") + " " + a.keys().AccessKey +
		" " + a.keys().SecretKey
}

// Where a client that traces writes to: the trace topic of the same cluster, for the group that trace names.
func (a Args) tracing() *primitive.TraceConfig {
	return &primitive.TraceConfig{
		GroupName: a.text("trace", ""), Access: primitive.Local, NamesrvAddrs: []string{a.text("namesrv", "")},
	}
}

// One producer for each name server and mode, kept for the next command.
func theProducer(a Args) (rocketmq.Producer, error) {
	producerLock.Lock()
	defer producerLock.Unlock()
	if p, ok := producers[producerKey(a)]; ok {
		return p, nil
	}
	options := []producer.Option{
		producer.WithNsResolver(a.resolver()), producer.WithInstanceName(instance("producer")),
		producer.WithGroupName("interop_go_" + a.text("mode", "sync")), producer.WithRetry(2),
		producer.WithSendMsgTimeout(10 * time.Second), producer.WithCompressMsgBodyOverHowmuch(4096),
	}
	switch a.text("mode", "sync") {
	case "ordered":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	case "queue":
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	if a.text("trace", "") != "" {
		options = append(options, producer.WithTrace(a.tracing()))
	}
	if keys := a.keys(); !keys.IsEmpty() {
		options = append(options, producer.WithCredentials(keys))
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	producers[producerKey(a)] = p
	return p, nil
}

func stopProducer(a Args) (any, error) {
	producerLock.Lock()
	defer producerLock.Unlock()
	p, ok := producers[producerKey(a)]
	if !ok {
		return false, nil
	}
	delete(producers, producerKey(a))
	return true, p.Shutdown()
}

func sent(r *primitive.SendResult, err error) any {
	if err != nil {
		return map[string]any{"error": failure(err)}
	}
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[r.Status]
	return map[string]any{
		"status": status, "msgId": r.MsgID, "offsetMsgId": r.OffsetMsgID, "queueOffset": r.QueueOffset,
		"broker": r.MessageQueue.BrokerName, "queueId": r.MessageQueue.QueueId, "regionId": r.RegionID,
		"traceOn": r.TraceOn,
	}
}

// One result for each message, one for all in mode batch: a send result, or {"error": ...}.
func send(a Args) (any, error) {
	var wanted []Message
	if err := a.into("messages", &wanted); err != nil {
		return nil, err
	}
	p, err := theProducer(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	messages := make([]*primitive.Message, 0, len(wanted))
	for _, m := range wanted {
		messages = append(messages, m.message())
	}
	results := make([]any, len(messages))
	switch a.text("mode", "sync") {
	case "batch":
		return sent(p.SendSync(ctx, messages...)), nil
	case "async":
		var left sync.WaitGroup
		for i, m := range messages {
			i := i
			left.Add(1)
			err := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) {
				results[i] = sent(r, err)
				left.Done()
			}, m)
			if err != nil {
				return nil, err
			}
		}
		done := make(chan struct{})
		go func() { left.Wait(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, fmt.Errorf("async sends without an answer")
		}
	case "oneway":
		for i, m := range messages {
			if err := p.SendOneWay(ctx, m); err != nil {
				return nil, err
			}
			results[i] = map[string]any{}
		}
	default:
		for i, m := range messages {
			results[i] = sent(p.SendSync(ctx, m))
		}
	}
	return results, nil
}

// ---- consumers ----

type push struct {
	client rocketmq.PushConsumer
	lock   sync.Mutex
	more   *sync.Cond
	seen   []any
}

var (
	consumerLock sync.Mutex
	pushes       = map[string]*push{}
	pulls        = map[string]rocketmq.PullConsumer{}
)

func keep[T any](table map[string]T, kind string, value T) string {
	consumerLock.Lock()
	defer consumerLock.Unlock()
	handle := fmt.Sprintf("%s-%d", kind, serial.Add(1))
	table[handle] = value
	return handle
}

func find[T any](table map[string]T, a Args, remove bool) (T, error) {
	consumerLock.Lock()
	defer consumerLock.Unlock()
	handle := a.text("handle", "")
	value, ok := table[handle]
	if !ok {
		return value, fmt.Errorf("no such handle: %s", handle)
	}
	if remove {
		delete(table, handle)
	}
	return value, nil
}

func (p *push) take(ctx context.Context, failures, delayLevel int, messages []*primitive.MessageExt) bool {
	if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
		c.DelayLevelWhenNextConsume = delayLevel
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	well := true
	for _, m := range messages {
		p.seen = append(p.seen, plain(m))
		well = well && int(m.ReconsumeTimes) >= failures
	}
	p.more.Broadcast()
	return well
}

func startPush(a Args) (any, error) {
	ordered := a.text("order", "") == "ordered"
	model := consumer.Clustering
	if a.text("model", "CLUSTERING") == "BROADCASTING" {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithNsResolver(a.resolver()), consumer.WithInstance(instance("push")),
		consumer.WithGroupName(a.text("group", "")), consumer.WithConsumerOrder(ordered),
		consumer.WithConsumerModel(model), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(int32(a.number("maxReconsumeTimes", -1))),
		consumer.WithConsumeGoroutineNums(4), consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
	if a.text("trace", "") != "" {
		options = append(options, consumer.WithTrace(a.tracing()))
	}
	if keys := a.keys(); !keys.IsEmpty() {
		options = append(options, consumer.WithCredentials(keys))
	}
	client, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	p := &push{client: client}
	p.more = sync.NewCond(&p.lock)
	failures, delayLevel := a.number("failures", 0), a.number("delayLevel", 1)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: a.text("expr", "*")}
	if sql := a.text("sql", ""); sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = client.Subscribe(a.text("topic", ""), selector,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if p.take(ctx, failures, delayLevel, messages) {
				return consumer.ConsumeSuccess, nil
			}
			if ordered {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		})
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	return keep(pushes, "push", p), nil
}

// All messages so far, as soon as there are `count` of them or the time is over.
func awaitPush(a Args) (any, error) {
	p, err := find(pushes, a, false)
	if err != nil {
		return nil, err
	}
	over := false
	timer := time.AfterFunc(a.timeout(), func() {
		p.lock.Lock()
		defer p.lock.Unlock()
		over = true
		p.more.Broadcast()
	})
	defer timer.Stop()
	p.lock.Lock()
	defer p.lock.Unlock()
	for len(p.seen) < a.number("count", 0) && !over {
		p.more.Wait()
	}
	return append([]any{}, p.seen...), nil
}

func stopPush(a Args) (any, error) {
	p, err := find(pushes, a, true)
	if err != nil {
		return nil, nil // stopped before
	}
	if err := p.client.Shutdown(); err != nil {
		return nil, err
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]any{}, p.seen...), nil
}

func newPull(a Args) (rocketmq.PullConsumer, error) {
	client, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(a.resolver()), consumer.WithInstance(instance("pull")),
		consumer.WithGroupName(a.text("group", "")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: a.text("expr", "*")}
	if err := client.Subscribe(a.text("topic", ""), selector); err != nil {
		return nil, err
	}
	return client, client.Start()
}

func startPull(a Args) (any, error) {
	client, err := newPull(a)
	if err != nil {
		return nil, err
	}
	return keep(pulls, "pull", client), nil
}

// Polls and acknowledges until `count` messages came or the time is over.
func pollPull(a Args) (any, error) {
	client, err := find(pulls, a, false)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(a.timeout())
	seen := []any{}
	for len(seen) < a.number("count", 0) && time.Now().Before(end) {
		request, err := client.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		seen = append(seen, plains(request.GetMsgList())...)
		client.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return seen, nil
}

// Pulls from one queue at an offset.
func pullFrom(a Args) (any, error) {
	client, err := find(pulls, a, false)
	if err != nil {
		return nil, err
	}
	var queue Queue
	if err := a.into("queue", &queue); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout())
	defer cancel()
	r, err := client.PullFrom(ctx, queue.mq(), int64(a.number("offset", 0)), a.number("max", 32))
	if err != nil {
		return nil, err
	}
	status := map[primitive.PullStatus]string{
		primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG", primitive.PullNoMsgMatched: "NO_MATCHED_MSG",
		primitive.PullOffsetIllegal: "OFFSET_ILLEGAL", primitive.PullBrokerTimeout: "BROKER_TIMEOUT",
	}[r.Status]
	return map[string]any{
		"status": status, "next": r.NextBeginOffset, "min": r.MinOffset, "max": r.MaxOffset,
		"messages": plains(r.GetMessageExts()),
	}, nil
}

func stopPull(a Args) (any, error) {
	client, err := find(pulls, a, true)
	if err != nil {
		return nil, nil // stopped before
	}
	return true, client.Shutdown()
}
