package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxLag is how many writes behind a copy may be: a majority has them, and under load the
	// slowest copy always lacks some. NATS calls it current only if it lacks none.
	maxLag = 1000
	// maxPeerSilence is for how long a server that has a copy, and is behind, may say nothing.
	maxPeerSilence = 15 * time.Second
	// maxNamed is how many streams a line names.
	maxNamed = 3
)

// serverCopies are the streams whose copies on one server are not as they should be.
type serverCopies struct {
	away, behind []string
	silence      time.Duration // of the copy that has been away for longest
}

// copyState judges a copy: Fail if it is away, Warn if it is far behind. NATS does not call a
// server offline that stands still, is cut off, or has switched JetStream off.
func copyState(peer *jetstream.PeerInfo) State {
	switch {
	case peer.Offline, !peer.Current && peer.Active > maxPeerSilence:
		return Fail
	case !peer.Current && peer.Lag > maxLag:
		return Warn
	}
	return OK
}

// leader looks for a stream that has no leader.
func (x *checker) leader(info *jetstream.StreamInfo) {
	if info.Cluster != nil && info.Config.Replicas > 1 && info.Cluster.Leader == "" {
		x.add("stream "+info.Config.Name, Fail, "no leader", "two of its three servers must run")
	}
}

// sortCopies adds the copies of a stream that are away or behind to those of their servers.
func sortCopies(servers map[string]*serverCopies, info *jetstream.StreamInfo) {
	if info.Cluster == nil || info.Config.Replicas <= 1 {
		return
	}
	for _, peer := range info.Cluster.Replicas {
		state := copyState(peer)
		if state == OK {
			continue
		}
		s := servers[peer.Name]
		if s == nil {
			s = &serverCopies{}
			servers[peer.Name] = s
		}
		if state == Warn {
			s.behind = append(s.behind, fmt.Sprintf("%s is %d behind", info.Config.Name, peer.Lag))
			continue
		}
		s.away, s.silence = append(s.away, info.Config.Name), max(s.silence, peer.Active)
	}
}

// copies notes the copies that are away or behind, in a line for each server: it may have those
// of thousands of streams.
func (x *checker) copies(servers map[string]*serverCopies) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		if s.away != nil {
			x.add("copies on "+name, Fail, fmt.Sprintf("offline, last heard of %s ago: %s", s.silence.Round(time.Second), firstOf(s.away)),
				"look at that server: it is away, cut off, or has switched JetStream off after a full disk until it is restarted; if it is lost, start one of the same name with an empty store")
		}
		if s.behind != nil {
			x.add("copies on "+name, Warn, "not current: "+firstOf(s.behind), "look at that server")
		}
	}
}

// firstOf names the first few, and how many more there are.
func firstOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
