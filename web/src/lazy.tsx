// The editor, loaded when it is first needed. Until then, and if it cannot be loaded, a plain field
// does the same.
import { signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import type Editor from './editor';

type Props = Parameters<typeof Editor>[0];
const loaded = signal<ComponentType<Props> | undefined>(undefined);

export function LazyEditor(p: Props) {
  if (!loaded.value) {
    import('./editor').then((m) => (loaded.value = m.default), () => undefined);
    const lines = p.text.split('\n').length;
    return (
      <textarea
        class="editor"
        style={{ height: `calc(max(7rem, ${lines} * 1.3125rem + 1rem) + 2px)` }}
        aria-label={p.label}
        value={p.text}
        onInput={(e) => p.onChange(e.currentTarget.value)}
      />
    );
  }
  return <loaded.value {...p} />;
}
