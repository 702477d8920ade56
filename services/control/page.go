package control

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/pod"
	"flightline/shared/web"
)

// mostListed is how many things a list has at most, and unless fewer are wanted.
const mostListed = 1000

// page is a part of a list that is a bare array, as RunPod's clients expect it:
// where the next one begins is told by the header Link.
type page struct {
	after string // the last id of the page before
	limit int
}

// pageOf reads the parameters limit and cursor.
func pageOf(c *fiber.Ctx) (page, error) {
	p := page{limit: mostListed}
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostListed {
			return p, web.Errorf(web.InvalidRequest, "limit must be 1 to %d", mostListed)
		}
		p.limit = n
	}
	if text := c.Query("cursor"); text != "" {
		id, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || !pod.ValidID(string(id)) {
			return p, web.Errorf(web.InvalidRequest, "cursor must be one that an answer gave")
		}
		p.after = string(id)
	}
	return p, nil
}

// cut returns the page's part of all, in order of their ids, and tells the
// client of the next page, if there is one.
func cut[T any](c *fiber.Ctx, p page, all []T, id func(T) string) []T {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	from, found := slices.BinarySearchFunc(all, p.after, func(x T, after string) int { return strings.Compare(id(x), after) })
	if found {
		from++
	}
	part := all[from:]
	if len(part) <= p.limit {
		return part
	}
	part = part[:p.limit]
	c.Set(fiber.HeaderLink, nextOf(c, id(part[len(part)-1])))
	return part
}

// nextOf is the header that names the page after an id: the same request, with
// its cursor.
func nextOf(c *fiber.Ctx, last string) string {
	query := c.Context().QueryArgs() // of this request only
	query.Set("cursor", base64.RawURLEncoding.EncodeToString([]byte(last)))
	return "<" + c.Path() + "?" + string(query.QueryString()) + `>; rel="next"`
}
