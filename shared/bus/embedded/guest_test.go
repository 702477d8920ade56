package embedded

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const guestPatience = 500 * time.Millisecond

// guests starts a server with the streams LOG and JOBS, a consumer of LOG, and
// a guest who may read LOG.
func guests(t *testing.T) (s *Server, own, guest *nats.Conn) {
	t.Helper()
	s, err := Start(t.Context(), Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", User: "u", Password: "p",
		Guests: []Guest{{User: "reader", Password: "r", Requests: []string{
			"$JS.API.CONSUMER.INFO.LOG.*", "$JS.API.CONSUMER.MSG.NEXT.LOG.*", "$JS.ACK.LOG.>", "$JS.API.DIRECT.GET.LOG",
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	own, err = s.Connect("own")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	js, err := jetstream.New(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LOG", "JOBS"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowDirect: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := js.Publish(t.Context(), name+".a", []byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	guest, err = nats.Connect(s.URL(), nats.UserInfo("reader", "r"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guest.Close)
	return s, own, guest
}

func TestAGuestReadsDurably(t *testing.T) {
	_, own, guest := guests(t)
	js, err := jetstream.New(guest)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.Consumer(t.Context(), "LOG", "c")
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.Fetch(3, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for m := range batch.Messages() {
		got++
		if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != uint64(got) || string(m.Data()) != "LOG" {
			t.Errorf("got %+v, %v, %q, want the message %d", meta, err, m.Data(), got)
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got != 3 || batch.Error() != nil {
		t.Errorf("got %d messages, %v, want 3", got, batch.Error())
	}
	owners, err := jetstream.New(own)
	if err != nil {
		t.Fatal(err)
	}
	c, err := owners.Consumer(t.Context(), "LOG", "c")
	if err != nil {
		t.Fatal(err)
	}
	if info := c.CachedInfo(); info.AckFloor.Stream != 3 || info.NumAckPending != 0 {
		t.Errorf("got acknowledged up to %d and %d under way, want 3 and 0", info.AckFloor.Stream, info.NumAckPending)
	}
}

func TestAGuestReadsBySequence(t *testing.T) {
	_, _, guest := guests(t)
	inbox := guest.NewInbox()
	sub, err := guest.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.PublishRequest("$JS.API.DIRECT.GET.LOG", inbox, []byte(`{"seq":2,"batch":10,"next_by_subj":">"}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2", "3"} {
		if m, err := sub.NextMsg(5 * time.Second); err != nil || m.Header.Get("Nats-Sequence") != want {
			t.Fatalf("got %+v, %v, want the message %s", m, err, want)
		}
	}
	if m, err := sub.NextMsg(5 * time.Second); err != nil || m.Header.Get("Status") != "204" {
		t.Errorf("got %+v, %v, want the end", m, err)
	}
}

func TestAGuestCanDoNothingElse(t *testing.T) {
	t.Parallel()
	s, own, guest := guests(t)
	js, err := jetstream.New(own)
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for _, subject := range []string{
		"JOBS.x", "LOG.x", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.LOG", "$JS.API.STREAM.PURGE.LOG", "$JS.API.STREAM.MSG.GET.LOG",
		"$JS.API.DIRECT.GET.JOBS", "$JS.API.CONSUMER.INFO.JOBS.c", "$JS.API.CONSUMER.MSG.NEXT.JOBS.c", "$JS.API.CONSUMER.CREATE.LOG.new",
		"$JS.API.CONSUMER.DURABLE.CREATE.LOG.new", "$JS.API.CONSUMER.DELETE.LOG.c", "$JS.API.CONSUMER.PAUSE.LOG.c", "$SYS.REQ.SERVER.PING", "durable.LOG",
	} {
		asking.Go(func() {
			if m, err := guest.Request(subject, []byte(`{}`), guestPatience); err == nil {
				t.Errorf("%s: got the answer %s", subject, m.Data)
			}
		})
	}
	asking.Wait()
	heard, err := guest.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "JOBS.a", nil); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.NextMsg(guestPatience); err == nil {
		t.Errorf("it heard %s", m.Subject)
	}
	// What it may ask for, delivered where it may not write.
	for _, ask := range []struct{ subject, body string }{
		{"$JS.API.CONSUMER.MSG.NEXT.LOG.c", `1`},
		{"$JS.API.CONSUMER.INFO.LOG.c", ``},
		{"$JS.API.DIRECT.GET.LOG", `{"seq":1,"batch":2,"next_by_subj":">"}`},
	} {
		if err := guest.PublishRequest(ask.subject, "JOBS.forged", []byte(ask.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := guest.Flush(); err != nil {
		t.Fatal(err)
	}
	// The owner's answers do go there, which is why a guest has an account.
	if err := own.PublishRequest("$JS.API.DIRECT.GET.LOG", "JOBS.owned", []byte(`{"seq":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Request("$JS.API.CONSUMER.INFO.LOG.c", nil, 5*time.Second); err != nil { // all before was handled
		t.Fatal(err)
	}
	jobs, err := js.Stream(t.Context(), "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.GetLastMsgForSubject(t.Context(), "JOBS.forged"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("got %v: an answer was stored as if somebody had written it", err)
	}
	stored := func() bool {
		_, err := jobs.GetLastMsgForSubject(t.Context(), "JOBS.owned")
		return err == nil
	}
	for end := time.Now().Add(5 * time.Second); !stored(); {
		if time.Now().After(end) {
			t.Fatal("the owner's answer is not stored: this test shows nothing")
		}
		<-time.After(10 * time.Millisecond)
	}
	if _, err := nats.Connect(s.URL(), nats.UserInfo("reader", "p")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("with the other's password: got %v", err)
	}
	if _, err := nats.Connect(s.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("as nobody: got %v", err)
	}
}

func TestAGuestNeedsAPassword(t *testing.T) {
	for name, cfg := range map[string]Config{
		"its own":     {Dir: t.TempDir(), User: "u", Password: "p", Guests: []Guest{{User: "reader"}}},
		"the owner's": {Dir: t.TempDir(), Guests: []Guest{{User: "reader", Password: "r"}}},
	} {
		if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("%s: got %v, want ErrNoCredentials", name, err)
		}
	}
}
