package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	transactionalLock sync.Mutex
	transactional     = map[string]rocketmq.TransactionProducer{}
)

// A body begins with what becomes of its message: see Transactions.java.
type planned struct{}

func (planned) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return planOf(m.Body, false)
}

func (planned) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return planOf(m.Body, true)
}

func planOf(body []byte, asked bool) primitive.LocalTransactionState {
	plan := strings.SplitN(strings.SplitN(string(body), " ", 2)[0], "/", 2)[0]
	if strings.HasPrefix(plan, "ask-") {
		if !asked {
			return primitive.UnknowState
		}
		plan = strings.TrimPrefix(plan, "ask-")
	}
	switch plan {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func startTransactions(a Args) (any, error) {
	p, err := rocketmq.NewTransactionProducer(planned{},
		producer.WithNsResolver(a.resolver()), producer.WithInstanceName(instance("tx")),
		producer.WithGroupName(a.text("group", "interop_go_tx")), producer.WithRetry(2),
		producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	handle := instance("tx-handle")
	transactionalLock.Lock()
	defer transactionalLock.Unlock()
	transactional[handle] = p
	return handle, nil
}

func sendInTransaction(a Args) (any, error) {
	transactionalLock.Lock()
	p, ok := transactional[a.text("handle", "")]
	transactionalLock.Unlock()
	if !ok {
		return nil, fmt.Errorf("no such producer: %s", a.text("handle", ""))
	}
	var m Message
	if err := a.into("message", &m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := p.SendMessageInTransaction(ctx, m.message())
	if err != nil {
		return nil, err
	}
	return sent(r.SendResult, nil), nil
}

func stopTransactions(a Args) (any, error) {
	transactionalLock.Lock()
	defer transactionalLock.Unlock()
	p, ok := transactional[a.text("handle", "")]
	if !ok {
		return false, nil
	}
	delete(transactional, a.text("handle", ""))
	return true, p.Shutdown()
}
