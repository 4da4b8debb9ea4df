import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';

// licenses adds a file with the licences of the packages that are built in.
const licenses: Plugin = {
  name: 'licenses',
  generateBundle(_, bundle) {
    const packages = new Map<string, string>();
    for (const chunk of Object.values(bundle)) {
      for (const id of chunk.type === 'chunk' ? Object.keys(chunk.modules) : []) {
        const found = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(id);
        if (found) packages.set(found[2]!, found[1]!);
      }
    }
    const texts = [...packages].sort().map(([name, dir]) => {
      const file = ['LICENSE', 'LICENSE.md', 'license'].map((n) => join(dir, n)).find(existsSync);
      if (!file) throw new Error(`${name} has no licence in ${dirname(dir)}`);
      return `${name}\n\n${readFileSync(file, 'utf8').trim()}\n`;
    });
    this.emitFile({ type: 'asset', fileName: 'licenses.txt', source: texts.join('\n---\n\n') });
  },
};

// What is built runs under the policy of service/console: files of its own origin, nothing inline.
export default defineConfig({
  base: './',
  plugins: [licenses],
  build: {
    target: 'es2023',
    outDir: 'build',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: 'assets/[name]-[hash].js',
        chunkFileNames: 'assets/[name]-[hash].js',
        assetFileNames: 'assets/[name]-[hash][extname]',
      },
    },
  },
});
