package selection

import (
	"fmt"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
)

// Mode names the members of a replica set that a read may go to.
type Mode uint8

// The modes; the zero value is the default.
const (
	Primary Mode = iota
	PrimaryPreferred
	Secondary
	SecondaryPreferred
	Nearest
	numModes
)

var modeNames = [numModes]string{
	Primary: "primary", PrimaryPreferred: "primaryPreferred", Secondary: "secondary",
	SecondaryPreferred: "secondaryPreferred", Nearest: "nearest",
}

// String returns the mode as servers and connection strings write it.
func (m Mode) String() string {
	if m < numModes {
		return modeNames[m]
	}
	return "invalid"
}

// ParseMode returns the mode of a name, in any case.
func ParseMode(text string) (Mode, error) {
	for m, name := range modeNames {
		if strings.EqualFold(text, name) {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("unknown read preference mode %q", text)
}

// ParseTagSet returns a tag set that is written as in connection strings, "dc:ny,rack:1". The
// empty text is the empty set, which every server matches.
func ParseTagSet(text string) (description.TagSet, error) {
	if text == "" {
		return nil, nil
	}
	var tags []description.Tag
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("tag %q is not name:value", part)
		}
		tags = append(tags, description.Tag{Name: name, Value: value})
	}
	return description.NewTagSet(tags...), nil
}

// The least maximum staleness: servers write down their progress every 10 s, and 90 s is what they
// find useful.
const (
	idleWritePeriod       = 10 * time.Second
	smallestMaxStaleness  = 90 * time.Second
	maxStalenessUnlimited = -1
)

// ReadPreference states which servers a read may go to. The zero value is primary.
type ReadPreference struct {
	Mode                Mode
	TagSets             []description.TagSet // the first that a server matches counts
	MaxStalenessSeconds *int64               // nil and -1: unlimited

	// HedgeEnabled is the hedge option of reads through a mongos; nil is not sent.
	//
	// Deprecated: MongoDB 8.0 deprecates hedged reads. The option is still accepted and sent.
	HedgeEnabled *bool
}

// Validate returns an error for the mode primary with any other component, which no server
// accepts. Whether MaxStalenessSeconds is large enough depends on the topology and is checked when
// a server is selected.
func (rp *ReadPreference) Validate() error {
	if rp == nil {
		return nil
	}
	if rp.Mode >= numModes {
		return fmt.Errorf("unknown read preference mode %d", rp.Mode)
	}
	if rp.Mode == Primary {
		switch {
		case rp.hasTags():
			return fmt.Errorf("read preference primary cannot be used with tag sets")
		case rp.limitsStaleness():
			return fmt.Errorf("read preference primary cannot be used with maxStalenessSeconds")
		case rp.HedgeEnabled != nil:
			return fmt.Errorf("read preference primary cannot be used with hedge")
		}
	}
	return nil
}

// String returns the mode and every component that is set.
func (rp *ReadPreference) String() string {
	if rp == nil {
		return modeNames[Primary]
	}
	var b strings.Builder
	b.WriteString(rp.Mode.String())
	if rp.hasTags() {
		fmt.Fprintf(&b, ", tag set list %v", rp.TagSets)
	}
	if rp.limitsStaleness() {
		fmt.Fprintf(&b, ", and maxStalenessSeconds %d", *rp.MaxStalenessSeconds)
	}
	if rp.HedgeEnabled != nil {
		fmt.Fprintf(&b, ", hedge %v", *rp.HedgeEnabled)
	}
	return b.String()
}

func (rp *ReadPreference) mode() Mode {
	if rp == nil {
		return Primary
	}
	return rp.Mode
}

// hasTags reports whether the tag sets exclude any server. A list that begins with the empty set
// does not.
func (rp *ReadPreference) hasTags() bool {
	return rp != nil && len(rp.TagSets) > 0 && len(rp.TagSets[0]) > 0
}

func (rp *ReadPreference) limitsStaleness() bool {
	return rp != nil && rp.MaxStalenessSeconds != nil &&
		*rp.MaxStalenessSeconds != maxStalenessUnlimited
}

// maxStaleness returns the limit. It must be called only if limitsStaleness.
func (rp *ReadPreference) maxStaleness() time.Duration {
	return time.Duration(*rp.MaxStalenessSeconds) * time.Second
}

// maxStalenessSecondsLimit, over a century, keeps durations from overflowing.
const maxStalenessSecondsLimit = 1 << 32

func (rp *ReadPreference) checkStaleness(heartbeat time.Duration) error {
	if !rp.limitsStaleness() {
		return nil
	}
	seconds := *rp.MaxStalenessSeconds
	least := max(smallestMaxStaleness, heartbeat+idleWritePeriod)
	if seconds < 0 || seconds > maxStalenessSecondsLimit || rp.maxStaleness() < least {
		return fmt.Errorf(
			"maxStalenessSeconds is %d, must be at least %v (heartbeatFrequencyMS + 10 s, and "+
				"90 s)",
			seconds, least.Seconds())
	}
	return nil
}

// ToSend returns the read preference that a read command carries to the server, or nil if it
// carries none (Server Selection, "Passing read preference to mongos and load balancers" and
// "Topology type: Single").
func (rp *ReadPreference) ToSend(kind description.Kind, s *description.Server) *ReadPreference {
	if kind == description.KindSingle {
		switch s.Kind {
		case description.ServerStandalone, description.ServerUnknown:
			return nil
		case description.ServerMongos, description.ServerLoadBalancer:
		default:
			if rp.mode() == Primary {
				return primaryPreferred
			}
		}
	}
	if rp.mode() == Primary {
		return nil
	}
	return rp
}

// primaryPreferred lets a secondary answer if the client is connected to it directly.
var primaryPreferred = &ReadPreference{Mode: PrimaryPreferred}

// AppendTo appends the read preference as a document with the key, "$readPreference" in commands.
func (rp *ReadPreference) AppendTo(b *bson.Builder, key string) {
	b.OpenDocument(key)
	b.String("mode", rp.mode().String())
	if rp != nil && len(rp.TagSets) > 0 {
		b.OpenArray("tags")
		for _, set := range rp.TagSets {
			b.OpenDocument("")
			for _, tag := range set {
				b.String(tag.Name, tag.Value)
			}
			b.Close()
		}
		b.Close()
	}
	if rp.limitsStaleness() {
		b.Int64("maxStalenessSeconds", *rp.MaxStalenessSeconds)
	}
	if rp != nil && rp.HedgeEnabled != nil {
		b.OpenDocument("hedge").Bool("enabled", *rp.HedgeEnabled).Close()
	}
	b.Close()
}
