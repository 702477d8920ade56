package bus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestRequesterReturnsTheAnswerToItsRequest(t *testing.T) {
	server := testenv.NewServer(t)
	testenv.Handle(t, server.NC, "ask.*", func(m *nats.Msg) {
		_ = m.Respond(append([]byte("of "), m.Data...))
		_ = m.Respond([]byte("once more")) // as a second leader would
	})
	nc, r := server.Connect(t), new(bus.Requester)
	var asking sync.WaitGroup
	for i := range 16 {
		asking.Go(func() {
			for range 50 {
				want := strings.Repeat("x", i)
				m, err := r.Ask(t.Context(), nc, &nats.Msg{Subject: "ask.me", Data: []byte(want)})
				if err != nil || string(m.Data) != "of "+want {
					t.Errorf("got %v, %v; want of %s", m, err, want)
					return
				}
			}
		})
	}
	asking.Wait()
	if n := r.Free(); n == 0 || n > 16 {
		t.Errorf("got %d inboxes, want at most one for each caller, kept", n)
	}
}

func TestALateAnswerIsNoAnswerToTheNextQuestion(t *testing.T) {
	server := testenv.NewServer(t)
	asked := make(chan *nats.Msg, 1)
	sub, err := server.NC.ChanSubscribe("slow", asked)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the server goes with the test
	if err := server.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	nc, r := server.Connect(t), new(bus.Requester)
	ctx, cancel := context.WithCancel(t.Context())
	var late *nats.Msg
	var waiting sync.WaitGroup
	waiting.Go(func() {
		late = <-asked
		cancel()
	})
	if m, err := r.Ask(ctx, nc, &nats.Msg{Subject: "slow", Data: []byte("1")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, %v; want it cancelled", m, err)
	}
	waiting.Wait()
	waiting.Go(func() {
		next := <-asked
		_ = late.Respond([]byte("to 1"))
		_ = next.Respond([]byte("to 2"))
	})
	m, err := r.Ask(t.Context(), nc, &nats.Msg{Subject: "slow", Data: []byte("2")})
	if err != nil || string(m.Data) != "to 2" {
		t.Errorf("got %v, %v; want to 2", m, err)
	}
	waiting.Wait()
}

func TestRequesterReportsWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	nc, r := server.Connect(t), new(bus.Requester)
	if m, err := r.Ask(t.Context(), nc, &nats.Msg{Subject: "nobody"}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody listens: got %v, %v", m, err)
	}
	testenv.Subscribe(t, server.NC, "silent")
	began := time.Now()
	if m, err := r.Ask(t.Context(), nc, &nats.Msg{Subject: "silent"}); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("no answer: got %v, %v", m, err)
	} else if took := time.Since(began); took < bus.RequestTimeout {
		t.Errorf("no answer: gave up after %s, want %s", took, bus.RequestTimeout)
	}
	nc.Close()
	if m, err := r.Ask(t.Context(), nc, &nats.Msg{Subject: "silent"}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("closed: got %v, %v", m, err)
	}
}

func TestTheServersAcknowledgementIsReadTheShortWay(t *testing.T) {
	server := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), server.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	m, err := new(bus.Requester).Ask(t.Context(), server.NC, &nats.Msg{Subject: streams.RecordSubject(0, "ep", "job", 1), Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if seq, ok := bus.PlainAck(m.Data); !ok || seq != 1 {
		t.Errorf("%s: got %d, %t; want 1, or plainAck is of no use with this server", m.Data, seq, ok)
	}
}

func TestPlainAckLeavesTheRestToJSON(t *testing.T) {
	for data, want := range map[string]struct {
		seq   uint64
		plain bool
	}{
		`{"stream":"S","seq":12}`:                          {12, true},
		`{"stream":"S","seq":12,"duplicate":true}`:         {12, false},
		`{"stream":"S","domain":"d","seq":12}`:             {12, false},
		`{"error":{"code":400,"err_code":1},"stream":"S"}`: {0, false},
		`{"stream":"S","seq":-1}`:                          {0, false},
		`{"stream":"S"}`:                                   {0, false},
		`{"stream":"S`:                                     {0, false},
		`{"stream":"S","seq":12`:                           {0, false},
		``:                                                 {0, false},
	} {
		if _, ok := bus.PlainAck([]byte(data)); ok != want.plain {
			t.Errorf("%s: got plain %t", data, ok)
		}
		if seq, _ := bus.ReadAck("S", []byte(data)); seq != want.seq {
			t.Errorf("%s: got %d, want %d", data, seq, want.seq)
		}
	}
}
