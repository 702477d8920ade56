package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StreamStates is StreamState of all streams that hold messages of a subject, by their names.
// It takes one request for 256 of them. Those that the server could not look at, as all that
// have them are away, are left out. No other is missing that is there during all of the call.
func (c *Client) StreamStates(ctx context.Context, subject string) (map[string]StreamState, error) {
	type stream struct {
		Config struct {
			Name string `json:"name"`
		} `json:"config"`
		State StreamState `json:"state"`
	}
	all := map[string]StreamState{}
	err := eachPage(ctx, c.answerOf, StreamList, subject, func(page []stream, missing []string) (names []string) {
		seen := map[string]bool{}
		for _, s := range page {
			all[s.Config.Name], seen[s.Config.Name] = s.State, true
		}
		for _, name := range missing { // also listed, as empty, if the server knows that they are away
			seen[name] = true
			delete(all, name)
		}
		return slices.Sorted(maps.Keys(seen))
	})
	return all, err
}

// StreamNames are the names of all streams, in order. None is missing that is there during
// all of the call.
func (c *Client) StreamNames(ctx context.Context) ([]string, error) {
	all := map[string]bool{}
	err := eachPage(ctx, c.answerOf, StreamNames, "", func(page, _ []string) []string {
		for _, name := range page {
			all[name] = true
		}
		return page
	})
	return slices.Sorted(maps.Keys(all)), err
}

// StreamInfos is all that the server says of all streams, by their names, and silent the
// others that there are: no server answered for them, as while they elect a leader. It asks
// for each page once, and waits for it up to the time given. No stream is missing in both that
// is there during all of the call.
func StreamInfos(ctx context.Context, nc *nats.Conn, within time.Duration) (all map[string]*jetstream.StreamInfo, silent []string, err error) {
	ask := func(ctx context.Context, subject string, body []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		answer, err := nc.RequestWithContext(ctx, subject, body)
		if err != nil {
			return nil, fmt.Errorf("list the streams: %w", err)
		}
		return answer.Data, nil
	}
	all = map[string]*jetstream.StreamInfo{}
	err = eachPage(ctx, ask, StreamList, "", func(page []*jetstream.StreamInfo, missing []string) []string {
		names := slices.Clone(missing)
		for _, info := range page {
			all[info.Config.Name] = info
			names = append(names, info.Config.Name)
		}
		for _, name := range missing { // also listed, as empty, if the server knows that they are away
			delete(all, name)
		}
		silent = append(silent, missing...)
		slices.Sort(names)
		return slices.Compact(names)
	})
	return all, silent, err
}

// Leaderless reports whether a stream of a cluster has no leader: a server that was left alone
// answers for it, and names none.
func Leaderless(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Name != "" && info.Cluster.Leader == ""
}

// eachPage asks for all pages of a list that the server has in the order of the names, by
// offsets; take returns the names on a page, in order. What is deleted between two pages
// moves what follows to smaller offsets. So a page begins with the last name of those
// before, or it is asked for at half the offset.
func eachPage[S any](ctx context.Context, ask func(ctx context.Context, subject string, body []byte) ([]byte, error), list, subject string, take func(page []S, missing []string) (names []string)) error {
	known := "" // all names up to it were taken
	for offset := 0; ; {
		body, err := json.Marshal(map[string]any{"subject": subject, "offset": offset})
		if err != nil {
			return err
		}
		var page struct {
			Error   *APIError `json:"error"`
			Total   int       `json:"total"`
			Streams []S       `json:"streams"`
			Missing []string  `json:"missing"`
		}
		answer, err := ask(ctx, list, body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("list the streams: %w", err)
		}
		if page.Error != nil {
			return page.Error.explain("list the streams")
		}
		names := take(page.Streams, page.Missing)
		switch end := offset + len(names); {
		case offset > 0 && (len(names) == 0 || names[0] > known):
			offset /= 2
		case end >= page.Total || len(names) == 0:
			return nil
		default:
			known = max(known, names[len(names)-1])
			offset = max(offset+1, end-1)
		}
	}
}
