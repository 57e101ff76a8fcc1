import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

/** `npm run build` writes `dist/`, which is committed: `npm start` serves it without this tool chain. */
export default defineConfig({
  // Relative: a proxy may put a path before the service.
  base: './',
  plugins: [react()],
  build: {
    target: 'es2023',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    license: { fileName: 'licenses.md' },
  },
});
