# What runs is JavaScript and production packages only. The database is another container or a managed PostgreSQL, so the
# optional package, the embedded PostgreSQL, stays out.
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY .ci ./.ci
RUN npm ci --ignore-scripts
COPY src ./src
COPY tsconfig.json ./
COPY console/dist ./console/dist
RUN npm run build && node .ci/whole.mjs && npm ci --omit=dev --omit=optional --ignore-scripts

FROM node:24-slim
LABEL org.opencontainers.image.title="agent-runtime" \
  org.opencontainers.image.description="A self-hosted agent runtime on PostgreSQL" \
  org.opencontainers.image.licenses="Apache-2.0"
# Nothing is installed in a container that runs.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn* \
  /usr/local/bin/yarn /usr/local/bin/yarnpkg
ENV NODE_ENV=production
WORKDIR /app
COPY LICENSE ./
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/vendor ./vendor
COPY migrations ./migrations
COPY bin ./bin

# In a container the service is reached from outside, so it asks for a credential: set RUNTIME_API_KEYS, JWT_ISSUER
# or both.
ENV HOST=0.0.0.0 PORT=8000
EXPOSE 8000
# A number: Kubernetes with runAsNonRoot refuses a name.
USER 1000:1000

# Without --start-interval, which Docker knows from 25 on.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/health`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]

# node is process 1 and handles SIGTERM itself: it drains, then exits with 0.
# Behind it stand commands: docker run IMAGE migrate.
ENTRYPOINT ["/app/bin/launch", "dist/main.js"]
