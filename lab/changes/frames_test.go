package changes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// framed is a protocol whose streams are frames: a byte of flags, four of the length, and the rest.
type framed struct {
	content string // type
	end     byte   // the flag of the frame with the end
}

var (
	overConnect = framed{"application/connect+proto", 2}
	overGRPCWeb = framed{"application/grpc-web+proto", 0x80}
)

// byFrames follows in such a protocol, and opens another stream whenever one ends.
func (v *viewer) byFrames(ctx context.Context, url, key string, over framed) {
	for ctx.Err() == nil {
		v.end(v.frames(ctx, url, key, over)) // it goes on
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (v *viewer) frames(ctx context.Context, url, key string, over framed) error {
	filter, err := extjson.Parse(nil, []byte(v.filter))
	if err != nil {
		return err
	}
	message, err := proto.Marshal(&mooringv1.LiveRequest{
		Database: database, Collection: collection, Filter: payload.NewDocument(filter),
	})
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		url+mooringv1.ChangeStreamService_Live_FullMethodName,
		bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", over.content)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	from := bufio.NewReader(resp.Body)
	for begun := false; ; begun = true {
		var m mooringv1.LiveResponse
		if err := over.next(from, &m); err != nil {
			return err
		}
		if !begun {
			v.mu.Lock()
			v.next = map[string]string{}
			v.mu.Unlock()
		}
		if err := v.message(&m); err != nil {
			return err
		}
	}
}

// next reads the next message. The end of the stream is an error.
func (p framed) next(from io.Reader, m proto.Message) error {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	part := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(from, part); err != nil {
		return err
	}
	if head[0] == p.end {
		return fmt.Errorf("the stream has ended: %s", part)
	}
	return proto.Unmarshal(part, m)
}

func (v *viewer) message(m *mooringv1.LiveResponse) error {
	if m.GetKind() == "ready" {
		return v.apply("ready", nil)
	}
	for _, d := range m.GetDocuments() {
		text, err := extjson.Append(nil, bson.Raw(d.GetBson()), extjson.Canonical)
		if err != nil {
			return err
		}
		if err := v.apply(m.GetKind(), text); err != nil {
			return err
		}
	}
	return nil
}
