package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/streams"
)

const (
	// minServer is the oldest NATS that does what the streams need, provenOn
	// the one that the tests run on.
	minServer, provenOn = "2.14.0", "2.15.2"
	// minPayload is the largest message that is sent: a part of a payload.
	minPayload = 1 << 20
	// maxClockOffset is how far the clocks may be apart before people are misled by
	// times in logs; jobs go by the server's clock alone.
	maxClockOffset = time.Second
)

// server looks at what NATS says when one connects.
func (x *checker) server() {
	version := x.nc.ConnectedServerVersion()
	state, hint := aged(version)
	x.add("nats version", state, version, hint)
	if got := x.nc.MaxPayload(); got < minPayload {
		x.add("max_payload", Fail, api.Size(max(0, got)), "set max_payload to 1MB or more: parts of payloads are that large")
	} else {
		x.add("max_payload", OK, api.Size(got), "")
	}
}

// aged judges a version of NATS.
func aged(version string) (State, string) {
	switch {
	case older(version, minServer):
		return Fail, "use NATS " + provenOn + "; " + minServer + " is the least that has what the streams need"
	case older(version, provenOn):
		return Warn, "tested with " + provenOn
	}
	return OK, ""
}

// durability says what an acknowledgement is worth by the stream that has the
// fewest copies, or the copies that there should be if there is no stream yet.
func (x *checker) durability(there map[string]*jetstream.StreamInfo) {
	var copies []int
	for name, info := range there {
		if _, ours := streams.PartOf(name); ours {
			copies = append(copies, info.Config.Replicas)
		}
	}
	if copies == nil {
		copies = []int{max(1, x.cfg.Streams.Replicas)}
	}
	fewest := slices.Min(copies)
	if fewest >= 3 {
		x.add("durability", OK, "an acknowledgement is that of two of three servers", "set sync_interval to always or 1s as well, for the day when all lose power at once")
		return
	}
	switch x.cfg.Sync {
	case "always":
		x.add("durability", OK, "this dev fsyncs each write before it acknowledges it: --sync always", "")
		return
	case "group":
		x.add("durability", OK, "this dev has a write on its disk before it acknowledges it, in one fsync with those of others: --sync group", "")
		return
	case "interval":
		x.add("durability", Warn, "a power loss loses what was accepted in up to 2 minutes: this dev runs with --sync interval", "start it with --sync auto or always")
		return
	}
	x.add("durability", Warn, fmt.Sprintf("copies of each message: %d at least; when a server writes to its disk is not visible to clients", fewest),
		"NATS must have 'jetstream { sync_interval: always }', see /jsz?config=1 of its monitoring port")
}

// older reports whether version is lower than the other, number by number; false
// if one of them is no version.
func older(version, than string) bool {
	a, b := numbers(version), numbers(than)
	return len(a) >= len(b) && slices.Compare(a[:len(b)], b) < 0
}

func numbers(version string) []int {
	release, _, _ := strings.Cut(version, "-")
	var all []int
	for text := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// account looks at the limits of JetStream; false means that it is off.
func (x *checker) account(ctx context.Context) bool {
	info, err := x.js.AccountInfo(ctx)
	if err != nil {
		x.add("jetstream", Fail, err.Error(), "enable JetStream for this account, and let this user ask for $JS.API.INFO; of a cluster, more than half of the nodes must be up")
		return false
	}
	x.checkLimits(info)
	return true
}

// checkLimits judges how much of its limits the account has used.
func (x *checker) checkLimits(info *jetstream.AccountInfo) {
	x.add("jetstream", OK, fmt.Sprintf("%d streams, %d consumers", info.Streams, info.Consumers), "")
	state, text := usage(info.Store, info.Limits.MaxStore)
	x.add("storage", state, text, hintIf(state, "raise max_file of the account, or let less be kept: see sizing in operating.md"))
	if most := info.Limits.MaxStreams; most > 0 && info.Streams*10 > most*9 {
		x.add("streams", Warn, fmt.Sprintf("%d of %d", info.Streams, most), "each endpoint is a stream: raise max_streams of the account")
	}
}

// usage judges how much of a limit is used; a limit of -1 or 0 is none.
func usage(used uint64, limit int64) (State, string) {
	if limit <= 0 {
		return OK, api.Size(used) + " used; the account has no limit, the disk of NATS has: see its /jsz"
	}
	text := fmt.Sprintf("%s of %s used", api.Size(used), api.Size(limit))
	switch {
	case used >= uint64(limit)/100*95:
		return Fail, text
	case used >= uint64(limit)/100*80:
		return Warn, text
	}
	return OK, text
}

func hintIf(s State, hint string) string {
	if s == OK {
		return ""
	}
	return hint
}

// schema compares versions; false means that this program must not touch the bus, as it
// is of a newer one, or half a backup.
func (x *checker) schema(ctx context.Context) bool {
	if err := streams.CheckRestored(ctx, x.js); errors.Is(err, streams.ErrRestoring) {
		x.add("restore", Fail, err.Error(), "run flightline restore again before Flightline is started")
		return false
	}
	version, found, err := streams.SchemaOf(ctx, x.js)
	switch {
	case err != nil:
		x.add("schema", Fail, err.Error(), "")
		return false
	case !found:
		x.add("schema", Warn, "Flightline was never started here", "start it, or run doctor --fix")
	case version > streams.Schema:
		x.add("schema", Fail, streams.CheckSchema(version).Error(), "use the newer program")
		return false
	case version < streams.Schema:
		x.add("schema", Warn, fmt.Sprintf("%d, this program has %d", version, streams.Schema), "start a role that makes streams first, which is control unless --create-streams says otherwise, or doctor --fix")
	default:
		x.add("schema", OK, strconv.Itoa(version), "")
	}
	return true
}

// clock compares this machine's clock with the server's.
func (x *checker) clock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.timeout())
	defer cancel()
	before := time.Now()
	m, err := x.nc.RequestWithContext(ctx, bus.StreamInfo(streams.Bucket(streams.BucketEndpoints)), nil)
	trip := time.Since(before)
	var answer struct {
		Time time.Time `json:"ts"`
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	switch {
	case err != nil:
		x.add("clock", Warn, fmt.Sprintf("the server's time could not be read: %v", err), "")
		return
	case answer.Time.IsZero():
		x.add("clock", Warn, "the server's time could not be read: there is no bucket to ask for", "start Flightline, or run doctor --fix")
		return
	}
	offset := answer.Time.Sub(before.Add(trip / 2)).Round(time.Millisecond)
	state := apart(offset, trip)
	x.add("clock", state, fmt.Sprintf("NATS is %s ahead of this machine (±%s)", offset, (trip/2).Round(time.Millisecond)),
		hintIf(state, "run NTP on both; jobs go by the clock of NATS alone, logs by each machine's"))
}

// apart judges an offset that was measured with a round trip of this length.
func apart(offset, trip time.Duration) State {
	if offset.Abs() > maxClockOffset+trip {
		return Warn
	}
	return OK
}

// clocks compares this machine's clock with that of each server of a cluster which leads a
// stream: all say their time between asked and answered. clock sees one of them.
func (x *checker) clocks(there map[string]*jetstream.StreamInfo, asked, answered time.Time) {
	wrong := map[string]time.Duration{}
	for _, info := range there {
		offset := max(0, info.TimeStamp.Sub(answered)) + min(0, info.TimeStamp.Sub(asked))
		if info.Cluster != nil && info.Cluster.Leader != "" && !info.TimeStamp.IsZero() && offset.Abs() > maxClockOffset {
			wrong[info.Cluster.Leader] = offset.Round(time.Millisecond)
		}
	}
	for _, server := range slices.Sorted(maps.Keys(wrong)) {
		x.add("clock of "+server, Warn, fmt.Sprintf("it is %s ahead of this machine", wrong[server]),
			"run NTP on both; what a server keeps expires by its clock, and jobs go by that of "+streams.Records(0)+"'s leader")
	}
}

// permissions tries the calls that are needed and change nothing.
func (x *checker) permissions(ctx context.Context) {
	bucket := streams.Bucket(streams.BucketEndpoints)
	var refused []string
	for _, call := range []struct{ subject, question string }{
		{bus.StreamInfo(bucket), ""},
		{bus.LeaderGet(bucket), `{"seq":1,"next_by_subj":">"}`},
		{bus.DirectGet(bucket), `{"seq":1,"next_by_subj":">"}`},
		{bus.ConsumerInfo(streams.Records(0), streams.DueConsumer), ""},
		{bus.PullNext(streams.Webhooks, "nobody"), `{"batch":1,"no_wait":true}`},
	} {
		asked, cancel := context.WithTimeout(ctx, askTimeout) // a call that is not permitted has no answer
		_, err := x.nc.RequestWithContext(asked, call.subject, []byte(call.question))
		cancel()
		if err != nil && !errors.Is(err, nats.ErrNoResponders) && !strings.Contains(call.subject, ".MSG.NEXT.") { // it may be asked, though nobody is there to answer
			refused = append(refused, "no answer to "+call.subject)
		}
	}
	if last := x.nc.LastError(); last != nil && strings.Contains(strings.ToLower(last.Error()), "permissions violation") {
		refused = append(refused, last.Error())
	}
	if len(refused) > 0 {
		x.add("permissions", Fail, strings.Join(refused, "; "), "let this user publish there and subscribe to its inbox")
		return
	}
	x.add("permissions", OK, "every kind of read that is needed was answered; writes were not tried", "")
}

// notFound reports whether something is missing, rather than could not be asked.
func notFound(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound)
}
