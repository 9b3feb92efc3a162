package postroom_test

import (
	"encoding/json"

	"github.com/postroom/postroom"
)

// reason reads why a message died from an event on $sys.dead.<queue>.
func reason(e *postroom.Event) string {
	var notice postroom.DeathNotice
	if err := json.Unmarshal(e.Body, &notice); err != nil {
		return err.Error()
	}
	return notice.Reason
}
