package operate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUndeleted(t *testing.T) {
	for name, test := range map[string]struct {
		unread  []span
		first   uint64
		deleted []uint64
		want    string
	}{
		"nothing":                      {nil, 1, nil, ""},
		"all deleted":                  {[]span{{2, 4}, {7, 7}}, 1, []uint64{2, 3, 4, 7}, ""},
		"one in the middle":            {[]span{{2, 6}}, 1, []uint64{2, 3, 5, 6}, "4"},
		"the ends":                     {[]span{{2, 6}}, 1, []uint64{3, 4, 5}, "2, 6"},
		"a part of a range":            {[]span{{2, 9}}, 1, []uint64{5}, "2 to 4, 6 to 9"},
		"none deleted":                 {[]span{{2, 9}}, 1, nil, "2 to 9"},
		"dropped from the front since": {[]span{{2, 9}}, 8, nil, "8 to 9"},
		"all dropped since":            {[]span{{2, 9}}, 10, []uint64{12}, ""},
		"cut off at the end since":     {[]span{{9, 9}, {11, 14}, {16, 17}}, 1, nil, "9, 11"},
		"many":                         {[]span{{1, 1}, {3, 3}, {5, 5}, {7, 7}, {9, 9}, {11, 11}}, 1, nil, "1, 3, 5, 7, 9, …"},
	} {
		if diff := cmp.Diff(test.want, spans(undeleted(test.unread, test.first, 11, test.deleted))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
