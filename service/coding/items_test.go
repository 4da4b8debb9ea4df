package coding_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
)

// TestCountItems checks what counts as an item, and that counting ends when there are too many.
func TestCountItems(t *testing.T) {
	tags := func(n int) *mooringv1.TagSet {
		set := &mooringv1.TagSet{Tags: map[string]string{}}
		for i := range n {
			set.Tags[string(rune('a'+i))] = "x"
		}
		return set
	}
	text := func(m proto.Message) []byte {
		out, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	preference := &mooringv1.FindRequest{ReadPreference: &mooringv1.ReadPreference{
		Tags: []*mooringv1.TagSet{tags(3), tags(0)},
	}}
	oneSet := &mooringv1.FindRequest{ReadPreference: &mooringv1.ReadPreference{
		Tags: []*mooringv1.TagSet{tags(26)},
	}}
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), nil)
	for _, c := range []struct {
		name string
		of   proto.Message
		text []byte
		most int
		want int
	}{
		{"nothing", preference, nil, 10, 0},
		{"lists and maps within messages", preference, text(preference), 10, 5},
		{"one too many", preference, text(preference), 4, 5},
		{"far too many", tags(0), text(tags(26)), 4, 5},
		{"far too many within a message", oneSet, text(oneSet), 4, 5},
		{"an unknown field", preference, append(unknown, text(preference)...), 10, 5},
		{"a cut message", tags(0), text(tags(2))[:8], 10, 1},
		{"a cut tag", tags(0), []byte{0x80}, 10, 0},
		{
			"single texts", &mooringv1.FindRequest{},
			text(&mooringv1.FindRequest{Database: "shop", Collection: "orders"}), 10, 0,
		},
		{
			"a text that could be a message", &mooringv1.FindRequest{},
			text(&mooringv1.FindRequest{Database: "\x08\x01"}), 10, 0,
		},
		{
			"numbers that are not packed", &descriptorpb.FileDescriptorProto{},
			text(&descriptorpb.FileDescriptorProto{PublicDependency: []int32{1, 2, 300}}), 10, 3,
		},
		{
			"packed numbers, byte by byte", &descriptorpb.SourceCodeInfo_Location{},
			text(&descriptorpb.SourceCodeInfo_Location{Path: []int32{1, 2, 300}}), 10, 4,
		},
	} {
		if got := coding.CountItems(c.of.ProtoReflect().Descriptor(), c.text,
			c.most); got != c.want {
			t.Errorf("CountItems of %s = %d, want %d", c.name, got, c.want)
		}
	}
}

// TestItems checks that a message has as many items as its encoding, and that counting ends when
// there are too many.
func TestItems(t *testing.T) {
	set := &mooringv1.TagSet{Tags: map[string]string{"a": "x", "b": "x"}}
	find := &mooringv1.FindRequest{
		Database:       "shop",
		ReadPreference: &mooringv1.ReadPreference{Tags: []*mooringv1.TagSet{set, {}, set}},
	}
	list, _ := structpb.NewList([]any{"a", []any{"b", "c"}})
	maps := &structpb.Struct{Fields: map[string]*structpb.Value{
		"a": structpb.NewListValue(list), "b": structpb.NewStringValue("b"),
	}}
	for name, m := range map[string]proto.Message{
		"none": set.ProtoReflect().New().Interface(), "lists": find, "maps": maps,
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want := coding.CountItems(m.ProtoReflect().Descriptor(), text, 100)
		if got := coding.Items(m.ProtoReflect(), 100); got != want {
			t.Errorf("%s: %d items, want %d", name, got, want)
		}
		if got := coding.Items(m.ProtoReflect(), 2); (got > 2) != (want > 2) {
			t.Errorf("%s: %d items of at most 2, want %d", name, got, want)
		}
	}
}
