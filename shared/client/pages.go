package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
)

var nextLink = regexp.MustCompile(`<([^>]*)>; *rel="?next"?`)

// allPages reads a list to its end: what follows is told by the header Link, as
// a reference to the same path with other parameters.
func allPages[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	list := []T{}
	for {
		var next string
		var part []T
		err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, heard: func(h http.Header) {
			next = ""
			if found := nextLink.FindStringSubmatch(h.Get("Link")); found != nil {
				next = found[1]
			}
		}}, &part)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
		if next == "" || len(part) == 0 {
			return list, nil
		}
		at, err := url.Parse(next)
		if err != nil {
			return nil, fmt.Errorf("client: the address of the next page: %w", err)
		}
		query = at.Query()
	}
}
