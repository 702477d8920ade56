package control

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/pod"
	"flightline/shared/web"
)

// bind reads the body of a request that RunPod has too, whatever its content
// type says. An error names the field that is wrong; fields that we do not know
// are RunPod's, and pass. What it returns shares no memory with the request.
func bind[T any](c *fiber.Ctx) (T, error) { return read[T](c, json.Unmarshal) }

// bindOwn is bind for a request that only we have: a field that there is not is
// a slip, and what it should have said must not be guessed.
func bindOwn[T any](c *fiber.Ctx) (T, error) {
	return read[T](c, func(raw []byte, to any) error {
		if !json.Valid(raw) { // a decoder stops at the end of the first document
			return json.Unmarshal(raw, to)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		return decoder.Decode(to)
	})
}

// bindOptional is bindOwn for a body that may be missing.
func bindOptional[T any](c *fiber.Ctx) (T, error) {
	if len(c.Request().Body()) == 0 {
		var none T
		return none, nil
	}
	return bindOwn[T](c)
}

func read[T any](c *fiber.Ctx, unmarshal func([]byte, any) error) (T, error) {
	var body T
	raw := c.Request().Body()
	wrong := pod.Misread(raw, unmarshal(raw, &body))
	switch {
	case wrong == nil && !isNull(raw):
		return body, nil
	case wrong == nil, wrong.Field == "" && json.Valid(raw):
		return body, web.Errorf(web.InvalidRequest, "the body must be a JSON object")
	case wrong.Field == "":
		return body, web.Errorf(web.InvalidRequest, "the body is not valid JSON")
	}
	return body, wrong
}

func isNull(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }

// answerList answers with the views of a list.
func answerList[T, V any](c *fiber.Ctx, list []T, viewOf func(T) V) error {
	views := make([]V, 0, len(list))
	for _, x := range list {
		views = append(views, viewOf(x))
	}
	return c.JSON(views)
}

// noContent answers that what was asked for is done, unless err says that it is not.
func noContent(c *fiber.Ctx, err error) error {
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// limitOf reads the parameter limit, from 1 to most; standard if it is not given.
func limitOf(c *fiber.Ctx, standard, most int) (int, error) {
	text := c.Query("limit")
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, web.Errorf(web.InvalidRequest, "limit must be between 1 and %d, got %.20q", most, text)
	}
	return n, nil
}

// mostListed is how many things a list has at most, and unless fewer are wanted.
const mostListed = 1000

// page is a part of a list that is a bare array, as RunPod's clients expect it:
// the header Link has the address of the next one.
type page struct {
	after string // the last id of the page before
	limit int
}

// pageOf reads the parameters limit and cursor.
func pageOf(c *fiber.Ctx) (page, error) {
	var p page
	var err error
	if p.limit, err = limitOf(c, mostListed, mostListed); err != nil {
		return p, err
	}
	if text := c.Query("cursor"); text != "" {
		id, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || !pod.ValidID(string(id)) {
			return p, web.Errorf(web.InvalidRequest, "cursor must be from an earlier answer, got %.20q", text)
		}
		p.after = string(id)
	}
	return p, nil
}

// cut returns the page's part of all, in order of their ids, and gives the
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
