package control

import (
	"bytes"
	"encoding/json"
	"strconv"

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

// boolOf reads a parameter that is true or false; false if it is not given.
func boolOf(c *fiber.Ctx, name string) (bool, error) {
	if !c.Request().URI().QueryArgs().Has(name) {
		return false, nil
	}
	given, err := strconv.ParseBool(c.Query(name))
	if err != nil {
		return false, web.Errorf(web.InvalidRequest, "%s must be true or false", name)
	}
	return given, nil
}
