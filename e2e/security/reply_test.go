package security

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// connect returns a connection of the role.
func (g *guarded) connect(r streams.Role) *nats.Conn {
	g.T.Helper()
	return testenv.Connect(g.T, bus.Config{URL: g.url, User: string(r), Password: g.password(r), InboxPrefix: streams.InboxPrefix(r)})
}

// request asks as a guest of the bus may, and returns the answer.
func request(t *testing.T, nc *nats.Conn, subject string, body []byte) *nats.Msg {
	t.Helper()
	m, err := nc.Request(subject, body, program.Soon)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return m
}

// A worker chooses what it writes and where it asks for the answer. Whatever it
// asks, and whatever the answer holds, nothing is stored, made or removed by it.
func TestAWorkersAnswersGoToItAlone(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"*", "mine"} {
		t.Run("worker of "+of, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, "--endpoint", of)
			g.T = t
			js, err := jetstream.New(g.connect(streams.RoleAdmin))
			if err != nil {
				t.Fatal(err)
			}
			if err := streams.Apply(t.Context(), js, streams.Config{}); err != nil {
				t.Fatal(err)
			}
			if err := streams.ApplyEndpoint(t.Context(), js, streams.Config{}, endpointOf(t, "mine")); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), "$KV.keys.real", []byte("{}")); err != nil {
				t.Fatal(err)
			}
			nc := g.connect(streams.RoleWorker)
			before := stateOf(t, js)
			const chained = "$KV.worker_pods.mine.chained" // which it may write itself
			for _, payload := range []string{`{"id":"forged"}`, `{"name":"EVIL","subjects":["evil"]}`, `{"seq":1}`, `{}`, ``} {
				for _, reply := range []string{
					"$KV.keys.forged", "$KV.pods.evil", "$JS.API.STREAM.CREATE.EVIL", "$JS.API.STREAM.PURGE.KV_keys", "$JS.API.STREAM.DELETE.KV_keys",
					"$JS.API.STREAM.MSG.DELETE.KV_keys", "imported.JS.API.STREAM.MSG.DELETE.KV_keys", "$JS.API.CONSUMER.DELETE.JOBS_mine.normal", "jobs.mine.n.forged",
					chained,
				} {
					askAll(t, nc, reply, []byte(payload))
				}
			}
			for _, stream := range []string{streams.Records(0), streams.Payloads(0), streams.Bucket(streams.BucketWorkerPods)} {
				before[stream] = 0 // what it wrote itself
			}
			after := stateOf(t, js)
			for stream, want := range before {
				if got, there := after[stream]; !there || want != 0 && got != want {
					t.Errorf("%s: got sequence %d, %v, want %d", stream, got, there, want)
				}
			}
			for stream := range after {
				if _, there := before[stream]; !there {
					t.Errorf("got a stream %s", stream)
				}
			}
			if got := request(t, nc, bus.DirectGet("KV_worker_pods")+"."+chained, nil); got.Header.Get("Status") != "404" {
				t.Errorf("got %v, want no answer to be a request", got.Header)
			}
			if err := nc.LastError(); err != nil {
				t.Errorf("got %v, want all of it permitted", err)
			}
		})
	}
}

// askAll sends all kinds of requests with this reply, and returns once they
// were answered.
func askAll(t *testing.T, nc *nats.Conn, reply string, payload []byte) {
	t.Helper()
	const own = "$KV.worker_pods.mine.w"
	request(t, nc, own, payload)
	direct := bus.DirectGet(streams.Bucket(streams.BucketWorkerPods)) + "." + own
	for subject, body := range map[string][]byte{
		direct: nil,
		bus.LeaderGet(streams.Bucket(streams.BucketWorkerPods)): []byte(`{"last_by_subj":"` + own + `"}`),
		bus.PullNext(streams.Jobs("mine"), "normal"):            []byte(`{"no_wait":true}`),
		"$KV.records_0.r.mine.j.1":                              payload,
		"payloads.0.mine.j.1.1.in.x":                            payload,
		"nudge.mine.j":                                          payload,
	} {
		if err := nc.PublishRequest(subject, reply, body); err != nil {
			t.Fatal(err)
		}
	}
	request(t, nc, direct, nil)
}

// stateOf is the last sequence and the number of messages of each stream.
func stateOf(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		all[info.Config.Name] = info.State.LastSeq<<32 | info.State.Msgs
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A reply that acknowledges another's message, or that the server makes itself,
// is refused.
func TestAWorkerMayNotAskForAnswersAsAcknowledgements(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, reply := range []string{"$JS.ACK.JOBS_other.normal.1.1.1.1.1", "_R_.x.y"} {
		err := g.try(streams.RoleWorker, func(nc *nats.Conn) error {
			return nc.PublishRequest(bus.PullNext("JOBS_mine", "normal"), reply, []byte(`{"no_wait":true}`))
		})
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("reply %s: got %v, want a refusal", reply, err)
		}
	}
}

// A worker reads no secret of an endpoint, and gets and reads nothing of
// others' queues.
func TestAWorkerSeesNoSecretOfAnEndpoint(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "--endpoint", "mine")
	for _, subject := range []string{
		bus.LeaderGet("KV_endpoints"), bus.DirectGet("KV_endpoints"), bus.DirectGet("KV_endpoints") + ".$KV.endpoints.mine",
		"$JS.API.CONSUMER.CREATE.KV_endpoints", "$JS.API.CONSUMER.CREATE.KV_worker_endpoints", bus.LeaderGet("KV_pods"), bus.LeaderGet("JOBS_other"),
		bus.StreamInfo("KV_keys"), "$JS.API.STREAM.NAMES",
	} {
		if err := g.try(streams.RoleWorker, func(nc *nats.Conn) error { return nc.Publish(subject, nil) }); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: got %v, want a refusal", subject, err)
		}
	}
	for _, subject := range []string{"jobs.>", "$KV.>", "nudge.>", "nudge.other.*", "_R_.>", "_INBOX.>"} {
		if err := g.try(streams.RoleWorker, func(nc *nats.Conn) error { _, err := nc.SubscribeSync(subject); return err }); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("hears %s: got %v, want a refusal", subject, err)
		}
	}
}

func endpointOf(t *testing.T, id string) endpoint.Endpoint {
	t.Helper()
	e, err := endpoint.Endpoint{ID: id}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
