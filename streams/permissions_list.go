package streams

import (
	"maps"
	"slices"

	"flightline/shared/bus"
)

// Permissions are the subjects of a role as the server wants them. What is
// denied is denied whatever is allowed.
type Permissions struct {
	// Publish and Deny are for publishing, Subscribe for subscriptions.
	Publish, Deny, Subscribe []string
}

// PermissionsOf is AccessOf as subjects, for an installation with these
// partitions and, if it is a worker, this endpoint ("*" for all). Each may listen
// to inboxes of its own; all but workers and readers may look at the settings of
// every stream and at the account's limits.
//
// NATS does not check where an answer goes: within an account, a client that may
// ask JetStream for a message can have it delivered to any subject. So workers and
// readers have accounts of their own (ServerConfig).
func PermissionsOf(c Config, r Role, endpoint string) Permissions {
	inbox := InboxPrefix(r) + ".>"
	switch r {
	case RoleAdmin:
		return Permissions{Publish: []string{">"}, Subscribe: []string{">"}}
	case RoleReader:
		return Permissions{Publish: EventReader(), Subscribe: []string{inbox}}
	case RoleControl, RoleAPI, RoleGateway, RoleRecorder, RoleWebhook, RoleAutoscaler, RoleConsole, RoleWorker:
	}
	a := AccessOf(c, r, endpoint)
	publish := append([]string{DurablePrefix + "*"}, a.Writes...)
	if r != RoleWorker {
		publish = append(publish, "$JS.API.INFO", bus.StreamInfo("*"))
	}
	for _, s := range append(slices.Clone(a.Reads), a.Follows...) {
		publish = append(publish, readSubjects(s)...)
		publish = append(publish, bus.StreamInfo(streamToken(s)))
	}
	for _, s := range a.Follows {
		publish = append(publish, followSubjects(s)...)
	}
	for _, s := range slices.Sorted(maps.Keys(a.Takes)) {
		for _, consumer := range a.Takes[s] {
			publish = append(publish, bus.ConsumerInfo(streamToken(s), consumer), bus.PullNext(streamToken(s), consumer), "$JS.ACK."+streamToken(s)+"."+consumer+".>")
		}
	}
	if a.Lists {
		publish = append(publish, bus.StreamList)
	}
	for _, s := range a.Counts {
		publish = append(publish, bus.ConsumerInfo(streamToken(s), "*"))
	}
	for _, s := range a.Removes {
		publish = append(publish, bus.MsgDelete(streamToken(s)))
	}
	purges := a.Purges
	if r != RoleWorker {
		purges = slices.Concat(purges, Written(c, r)) // to ask whether they take writes
	}
	for _, s := range purges {
		publish = append(publish, bus.StreamPurge(streamToken(s)))
	}
	if a.Makes {
		publish = append(publish, makeSubjects()...)
	}
	if a.Pauses {
		for _, class := range classes() {
			publish = append(publish, pauseSubject(class))
		}
	}
	slices.Sort(publish)
	return Permissions{
		Publish: slices.Compact(publish), Deny: denied(c, a, purges, r == RoleWorker), Subscribe: append([]string{inbox}, a.Subscribes...),
	}
}

// streamToken is a stream as a token of a subject: wildcards stand for whole tokens.
func streamToken(stream string) string {
	if stream == Any {
		return "*"
	}
	return stream
}

func readSubjects(stream string) []string {
	s := streamToken(stream)
	return []string{bus.LeaderGet(s), bus.DirectGet(s), bus.DirectGet(s) + ".>"}
}

// followSubjects is what reading all messages takes: a consumer of one's own.
func followSubjects(s string) []string {
	return []string{
		"$JS.API.CONSUMER.CREATE." + s, "$JS.API.CONSUMER.CREATE." + s + ".>", "$JS.API.CONSUMER.DELETE." + s + ".*",
		bus.ConsumerInfo(s, "*"), bus.PullNext(s, "*"), "$JS.FC." + s + ".>",
	}
}

// makeSubjects is what Apply, ApplyEndpoint, ApplySubscriber, Pause and the end of an
// endpoint take, and the list of all streams.
func makeSubjects() []string {
	all := []string{bus.StreamList, "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*"}
	for _, c := range append(classes(), DueConsumer, WebhookConsumer, Subscriber) {
		all = append(all, "$JS.API.CONSUMER.CREATE.*."+c, "$JS.API.CONSUMER.CREATE.*."+c+".>", bus.ConsumerInfo("*", c), pauseSubject(c))
	}
	return all
}

// pauseSubject is what pausing and resuming a consumer of any stream takes.
func pauseSubject(consumer string) string { return "$JS.API.CONSUMER.PAUSE.*." + consumer }

// denied takes back of the streams that are known what the queues of all
// endpoints, by a wildcard, were given; with infos also their settings.
func denied(c Config, a Access, purges []string, infos bool) []string {
	var all []string
	for _, s := range Shared(c) {
		if slices.Contains(a.Reads, Any) && !slices.Contains(a.Reads, s) && !slices.Contains(a.Follows, s) {
			all = append(all, readSubjects(s)...)
			if infos {
				all = append(all, bus.StreamInfo(s))
			}
		}
		if slices.Contains(a.Removes, Any) && !slices.Contains(a.Removes, s) {
			all = append(all, bus.MsgDelete(s))
		}
		if slices.Contains(purges, Any) && !slices.Contains(purges, s) {
			all = append(all, bus.StreamPurge(s))
		}
		if a.Makes {
			all = append(all, "$JS.API.STREAM.DELETE."+s)
		}
	}
	return all
}

// Shared are the names of all streams but the queues of endpoints.
func Shared(c Config) []string {
	var all []string
	for _, w := range AllWanted(c, nil) {
		all = append(all, w.Config.Name)
	}
	return all
}
