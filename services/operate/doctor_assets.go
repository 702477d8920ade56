package operate

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxAssets is how many streams and consumers with several copies one server
	// should have, by what NATS's maintainers say: each is a raft group.
	maxAssets = 2000
	// assetsPerEndpoint is a queue and its two consumers.
	assetsPerEndpoint = 3
)

// assetsOf counts the raft groups of the server that has most of them: streams
// with several copies, and their consumers, which lie on the same servers.
func assetsOf(there map[string]*jetstream.StreamInfo) int {
	on, most := map[string]int{}, 0
	for _, info := range there {
		if info.Config.Replicas <= 1 || info.Cluster == nil {
			continue
		}
		servers := []string{info.Cluster.Leader}
		for _, peer := range info.Cluster.Replicas {
			servers = append(servers, peer.Name)
		}
		for _, name := range servers {
			on[name] += 1 + info.State.Consumers
			most = max(most, on[name])
		}
	}
	return most
}

// crowded judges the number of raft groups of a server.
func crowded(assets int) (state State, text, hint string) {
	text = fmt.Sprintf("%d of %d streams and consumers that a server should have with copies", assets, maxAssets)
	if assets*10 < maxAssets*8 {
		return OK, text, ""
	}
	return Warn, text, fmt.Sprintf("each endpoint takes %d, so about 650 endpoints fit on three servers: delete some, or use more servers or a second NATS", assetsPerEndpoint)
}
