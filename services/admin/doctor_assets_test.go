package admin

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestCrowded(t *testing.T) {
	t.Parallel()
	for assets, want := range map[int]State{0: OK, 1599: OK, 1600: Warn, 2000: Warn, 9000: Warn} {
		if got, _, hint := crowded(assets); got != want || (hint == "") != (want == OK) {
			t.Errorf("%d: got %s with the hint %q, want %s", assets, got, hint, want)
		}
	}
}

func TestAssetsAreThoseOfTheServerWithMost(t *testing.T) {
	t.Parallel()
	stream := func(replicas, consumers int, servers ...string) *jetstream.StreamInfo {
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: replicas}, State: jetstream.StreamState{Consumers: consumers}}
		info.Cluster = &jetstream.ClusterInfo{Leader: servers[0]}
		for _, name := range servers[1:] {
			info.Cluster.Replicas = append(info.Cluster.Replicas, &jetstream.PeerInfo{Name: name})
		}
		return info
	}
	for name, test := range map[string]struct {
		there map[string]*jetstream.StreamInfo
		want  int
	}{
		"nothing":      {nil, 0},
		"one copy":     {map[string]*jetstream.StreamInfo{"S": stream(1, 2, "a")}, 0},
		"three copies": {map[string]*jetstream.StreamInfo{"S": stream(3, 2, "a", "b", "c"), "T": stream(3, 0, "b", "c", "a")}, 4},
		"five servers": {map[string]*jetstream.StreamInfo{"S": stream(3, 2, "a", "b", "c"), "T": stream(3, 1, "c", "d", "e")}, 5},
	} {
		if got := assetsOf(test.there); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}
