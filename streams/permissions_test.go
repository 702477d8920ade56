package streams_test

import (
	"slices"
	"strings"
	"testing"

	"flightline/shared/bus"
	"flightline/streams"
)

// What must hold of the table, whatever is added to it.
func TestNoRoleMayDoWhatIsAnothers(t *testing.T) {
	c := streams.Config{Partitions: 2}
	secrets := []string{bus.LeaderGet("KV_keys"), bus.LeaderGet("KV_tokens")}
	writers := map[string][]streams.Role{
		"jobs.>":                            {streams.RoleAPI},
		"events.>":                          {streams.RoleRecorder},
		"$KV.keys.>":                        {streams.RoleControl},
		"$KV.endpoints.>":                   {streams.RoleControl, streams.RoleAutoscaler}, // which pauses those whose jobs fail
		"$JS.API.CONSUMER.PAUSE.*.normal":   {streams.RoleControl, streams.RoleAutoscaler},
		bus.StreamList:                      {streams.RoleControl, streams.RoleAPI},
		"$JS.API.STREAM.CREATE.*":           {streams.RoleControl},
		"$JS.API.STREAM.DELETE.*":           {streams.RoleControl},
		bus.PullNext("WEBHOOKS", "webhook"): {streams.RoleWebhook},
		bus.PullNext("*", "normal"):         {streams.RoleControl, streams.RoleAPI, streams.RoleGateway},
	}
	for _, role := range streams.Roles() {
		if role == streams.RoleAdmin {
			continue
		}
		p := streams.PermissionsOf(c, role, "ep")
		for subject, may := range writers {
			if got, want := slices.Contains(p.Publish, subject), slices.Contains(may, role); got != want {
				t.Errorf("%s on %s: got %v, want %v", role, subject, got, want)
			}
		}
		for _, secret := range secrets {
			needs := role == streams.RoleControl || role == streams.RoleAPI || role == streams.RoleGateway || strings.Contains(secret, "tokens") && role == streams.RoleAutoscaler
			allowed := slices.Contains(p.Publish, secret) || slices.Contains(p.Publish, bus.LeaderGet("*"))
			if got := allowed && !slices.Contains(p.Deny, secret); got != needs {
				t.Errorf("%s reads %s: got %v, want %v", role, secret, got, needs)
			}
		}
		if slices.Contains(p.Publish, ">") || slices.Contains(p.Subscribe, ">") || slices.Contains(p.Subscribe, "_INBOX.>") {
			t.Errorf("%s may do everything, or listen to the answers of others: %v", role, p)
		}
	}
}

// A worker of one endpoint names no other, and no wildcard instead of it.
func TestAWorkerHasItsOwnEndpointOnly(t *testing.T) {
	for _, subject := range streams.PermissionsOf(streams.Config{}, streams.RoleWorker, "ep").Publish {
		for _, prefix := range []string{"$KV.records_0.r.", "output.*.", "payloads.*.", "$KV.workers.", "$JS.ACK."} {
			if rest, found := strings.CutPrefix(subject, prefix); found && !strings.HasPrefix(rest, "ep.") && !strings.HasPrefix(rest, "JOBS_ep.") {
				t.Errorf("got %s", subject)
			}
		}
	}
}

// Streams that are shared are named, each partition's too.
func TestSharedNamesEveryStream(t *testing.T) {
	got := streams.Shared(streams.Config{Partitions: 2})
	for _, want := range []string{"KV_records_1", "OUTPUT_1", "PAYLOADS_1", "LOGS_1", "EVENTS", "SCALING", "KV_keys", "KV_cursors"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %v, want %s in it", got, want)
		}
	}
}

func TestAServersConfiguration(t *testing.T) {
	s := streams.ServerConfig{Passwords: map[streams.Role]string{streams.RoleAPI: "$2a$04$hash", streams.RoleReader: "$NATS_PASSWORD_READER"}}
	alone := s.String()
	for _, want := range []string{"sync_interval: always", `user: api, password: "$2a$04$hash"`, "user: reader, password: $NATS_PASSWORD_READER", `http: "127.0.0.1:8222"`} {
		if !strings.Contains(alone, want) {
			t.Errorf("got no %s in\n%s", want, alone)
		}
	}
	for _, missing := range []string{"user: control", "tls {", "cluster {", "SYSTEM"} {
		if strings.Contains(alone, missing) {
			t.Errorf("got %s, want none", missing)
		}
	}
	s.TLS = &streams.ServerTLS{Cert: "/c", Key: "/k", CA: "/ca"}
	s.Cluster, s.ClusterPassword, s.SystemPassword = []string{"n1:7222", "n2:7222"}, "between", "above"
	many := s.String()
	for _, want := range []string{"server_name: $NATS_NAME", "nats-route://route:between@n2:7222", `listen: "0.0.0.0:7222"`, "system_account: SYSTEM"} {
		if !strings.Contains(many, want) {
			t.Errorf("got no %s in\n%s", want, many)
		}
	}
	if n := strings.Count(many, "verify: true"); n != 2 {
		t.Errorf("got TLS %d times, want it for clients and between servers:\n%s", n, many)
	}
}

func TestTheRoleOfASharedConsumer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stream, consumer string
		role             streams.Role
		shared           bool
	}{
		{streams.Webhooks, streams.WebhookConsumer, streams.RoleWebhook, true},
		{streams.Records(1), streams.DueConsumer, streams.RoleAPI, true},
		{streams.Records(2), streams.DueConsumer, "", false}, // there are two partitions
		{streams.Jobs("ep"), "normal", "", false},
		{streams.Events, streams.Subscriber, "", false},
	} {
		if role, shared := streams.RoleOf(streams.Config{Partitions: 2}, test.stream, test.consumer); role != test.role || shared != test.shared {
			t.Errorf("%s of %s: got %q, %v, want %q, %v", test.consumer, test.stream, role, shared, test.role, test.shared)
		}
	}
}
