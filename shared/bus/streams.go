package bus

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// StreamStates is StreamState of all streams that hold messages of a subject, by their names.
// It takes one request for 256 of them. Those that the server could not look at, as all that
// have them are away, are left out. No other is missing that is there during all of the call.
func (c *Client) StreamStates(ctx context.Context, subject string) (map[string]StreamState, error) {
	all := map[string]StreamState{}
	err := c.eachPage(ctx, StreamList, subject, func(page []byte) (names []string, err error) {
		var got struct {
			Missing []string `json:"missing"`
			Streams []struct {
				Config struct {
					Name string `json:"name"`
				} `json:"config"`
				State StreamState `json:"state"`
			} `json:"streams"`
		}
		if err := json.Unmarshal(page, &got); err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, s := range got.Streams {
			all[s.Config.Name], seen[s.Config.Name] = s.State, true
		}
		for _, name := range got.Missing { // also listed, as empty, if the server knows that they are away
			seen[name] = true
			delete(all, name)
		}
		return slices.Sorted(maps.Keys(seen)), nil
	})
	return all, err
}

// StreamNames are the names of all streams, in order. None is missing that is there during
// all of the call.
func (c *Client) StreamNames(ctx context.Context) ([]string, error) {
	all := map[string]bool{}
	err := c.eachPage(ctx, StreamNames, "", func(page []byte) ([]string, error) {
		var got struct {
			Streams []string `json:"streams"`
		}
		err := json.Unmarshal(page, &got)
		for _, name := range got.Streams {
			all[name] = true
		}
		return got.Streams, err
	})
	return slices.Sorted(maps.Keys(all)), err
}

// eachPage asks for all pages of a list that the server has in the order of the names, by
// offsets; take returns the names on a page, in order. What is deleted between two pages
// moves what follows to smaller offsets. So a page begins with the last name of those
// before, or it is asked for at half the offset.
func (c *Client) eachPage(ctx context.Context, list, subject string, take func(page []byte) (names []string, err error)) error {
	known := "" // all names up to it were taken
	for offset := 0; ; {
		body, err := json.Marshal(map[string]any{"subject": subject, "offset": offset})
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := c.Query(ctx, list, body, &raw); err != nil {
			return err
		}
		var page struct {
			Error *APIError `json:"error"`
			Total int       `json:"total"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return err
		}
		if page.Error != nil {
			return c.Explain(ctx, page.Error, "", "list the streams")
		}
		names, err := take(raw)
		switch end := offset + len(names); {
		case err != nil:
			return err
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
