package embedded

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What the document has operators configure is what a guest has here.
func TestTheDocumentedConfigurationMakesAReader(t *testing.T) {
	text, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```conf\n")
	conf, _, _ := strings.Cut(rest, "```")
	t.Setenv("FLIGHTLINE_NATS_PASSWORD", "p")
	t.Setenv("FLIGHTLINE_NATS_EVENTS_PASSWORD", "r")
	opts := &server.Options{}
	if err := opts.ProcessConfigString(conf); err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(readyTimeout) {
		t.Fatal("not ready")
	}
	own, guest := enter(t, ns.ClientURL(), "flightline", "p", "$JS.API"), enter(t, ns.ClientURL(), "events", "r", "flightline")
	if _, err := own.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := own.CreateConsumer(t.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Publish(t.Context(), "events.a", nil); err != nil {
		t.Fatal(err)
	}
	consumer, err := guest.Consumer(t.Context(), "EVENTS", "c")
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil || m.Subject() != "events.a" {
		t.Errorf("got %s, %v", m.Subject(), err)
	}
	if answer, err := guest.Conn().Request("$JS.API.DIRECT.GET.EVENTS", []byte(`{"seq":1}`), readyTimeout); err != nil || answer.Header.Get("Nats-Sequence") != "1" {
		t.Errorf("by sequence: got %+v, %v", answer, err)
	}
	for _, subject := range []string{"events.b", "$JS.API.STREAM.DELETE.EVENTS", "flightline.CONSUMER.CREATE.EVENTS.new"} {
		if answer, err := guest.Conn().Request(subject, []byte(`{}`), guestPatience); err == nil {
			t.Errorf("%s: got the answer %s", subject, answer.Data)
		}
	}
}

func enter(t *testing.T, url, user, password, prefix string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.UserInfo(user, password), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.NewWithAPIPrefix(nc, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
